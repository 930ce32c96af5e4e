//! `flux run --print` and `--explain`: the command to paste, and where each setting comes from.

use std::fmt::Write as _;

use crate::cli::output::Style;
use crate::domain::text::{capitalised, clean, moment};
use crate::engine::run::{Explanation, RunPlan};

/// What stock would do otherwise, in one line; `None` where nothing differs.
pub fn against_stock(plan: &RunPlan) -> Option<String> {
    let differs = plan.stock.iter().map(|s| {
        format!(
            "{}={} (stock: {})",
            clean(&s.setting),
            clean(&s.value),
            clean(&s.stock)
        )
    });
    let differs: Vec<String> = differs.collect();
    (!differs.is_empty()).then(|| format!("differs from stock: {}", differs.join(", ")))
}

/// Why there is nothing to explain: stock, or what runs where stock does not.
fn without_profile(plan: &RunPlan) -> String {
    let why = plan.notices.iter().map(|n| capitalised(&clean(&n.text)));
    why.map(|line| line + "\n").collect()
}

/// Each setting with its evidence and what stock has instead, then the command.
pub fn explanation(plan: &RunPlan, command: &str, style: Style) -> String {
    let mut text = match &plan.profile {
        Some(profile) if profile.session == 0 => format!(
            "{}\n",
            style.heading(&format!(
                "Imported profile: {} goal, {}; its evidence stayed where it was measured",
                profile.goal, profile.settings
            ))
        ),
        Some(profile) => format!(
            "{}\n",
            style.heading(&format!(
                "Profile {}: {} goal, confirmed in session {}, {}{}",
                profile.id,
                profile.goal,
                profile.session,
                moment(profile.created_at),
                if profile.simulated { ", simulated" } else { "" }
            ))
        ),
        None => without_profile(plan),
    };
    let session = plan.profile.as_ref().map_or(0, |p| p.session);
    for entry in &plan.explanation {
        let stock = plan.stock.iter().find(|s| s.setting == entry.setting);
        let stock = stock.map_or("the same", |s| s.stock.as_str());
        text.push_str(&setting(entry, stock, session, style));
    }
    let _ = write!(text, "\n{}\n  {command}\n", style.heading("Command"));
    text
}

fn setting(entry: &Explanation, stock: &str, session: i64, style: Style) -> String {
    let title = format!("{}={}", clean(&entry.setting), clean(&entry.value));
    let lab = entry.lab_text.as_ref();
    let lab = lab.map_or_else(String::new, |text| {
        format!("  Kernel lab: {}\n", clean(text))
    });
    format!(
        "\n{}\n  {}\n  Stock: {}\n  Screened by run {} of session {session}: {}\n  Confirmed: {}\n{lab}",
        style.heading(&title),
        clean(&entry.describe),
        clean(stock),
        entry.run_number,
        clean(&entry.run_metric_text),
        clean(&entry.confirmation_text),
    )
}

#[cfg(test)]
mod tests {
    use crate::engine::settings::AgainstStock;
    use crate::ports::{Notice, NoticeLevel};

    use super::*;
    use crate::domain::types::{Goal, Launch, Profile, Settings, Timestamp};
    use std::collections::BTreeMap;

    fn plan() -> RunPlan {
        RunPlan {
            argv: [
                "/opt/llama cpp/llama-server",
                "-m",
                "it's a \"model\" & 100% (v1) #2.gguf",
            ]
            .map(str::to_owned)
            .to_vec(),
            env: BTreeMap::from([("GGML_VK_ALLOW_GRAPHICS_QUEUE".to_owned(), "1".to_owned())]),
            profile: Some(Profile {
                id: 4,
                session: 5,
                fingerprint: String::new(),
                runtime_digest: String::new(),
                model_digest: String::new(),
                goal: Goal::Generation,
                settings: Settings::stock(),
                bench: Launch::default(),
                server: Launch::default(),
                created_at: Timestamp(0),
                simulated: false,
            }),
            explanation: vec![Explanation {
                setting: "graphics-queue".to_owned(),
                value: "on".to_owned(),
                describe: "one queue".to_owned(),
                run_id: 17,
                run_number: 9,
                run_metric_text: "tg128 38.20 t/s, stock 22.81".to_owned(),
                confirmation_text: "+68.3 % (95 % CI +67.9 to +68.8), 8 + 8 runs".to_owned(),
                lab_text: Some("RX 580: only one queue family computes (session 3)".to_owned()),
            }],
            stock: vec![AgainstStock {
                setting: "graphics-queue".to_owned(),
                value: "on".to_owned(),
                stock: "left to llama.cpp".to_owned(),
            }],
            notices: vec![],
        }
    }

    #[test]
    fn every_setting_cites_its_run_and_its_confirmation() {
        let text = explanation(&plan(), "llama-server", Style::PLAIN);
        assert!(
            text.starts_with(
                "Profile 4: generation goal, confirmed in session 5, 1970-01-01 00:00 UTC\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("graphics-queue=on\n  one queue\n  Stock: left to llama.cpp\n  Screened by run 9 of session 5: tg128 38.20 t/s, stock 22.81\n  Confirmed: +68.3 %"),
            "{text}"
        );
    }

    #[test]
    fn a_setting_cites_the_kernel_lab_where_it_was_asked() {
        let mut plan = plan();
        let text = explanation(&plan, "llama-server", Style::PLAIN);
        assert!(
            text.contains(
                "8 + 8 runs\n  Kernel lab: RX 580: only one queue family computes (session 3)\n"
            ),
            "{text}"
        );
        plan.explanation[0].lab_text = None;
        assert!(!explanation(&plan, "llama-server", Style::PLAIN).contains("Kernel lab"));
    }

    #[test]
    fn stock_says_that_nothing_was_tuned() {
        let text = explanation(
            &RunPlan {
                profile: None,
                explanation: vec![],
                notices: vec![Notice {
                    level: NoticeLevel::Info,
                    code: "no-profile".to_owned(),
                    text: "no profile: stock settings".to_owned(),
                }],
                ..plan()
            },
            "llama-server",
            Style::PLAIN,
        );
        assert!(text.starts_with("No profile: stock settings\n"), "{text}");
    }
}
