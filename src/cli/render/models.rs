//! Model files as a table: what each is, what it needs, what is wrong with it.

use std::fmt::Write as _;

use crate::cli::output::Style;
use crate::domain::text::{clean, count, parameters};
use crate::domain::types::{Bytes, ModelInfo, ModelKind, ModelListing};
use crate::engine::models::needs;

use super::table::{Align, Table};

/// Tensor types shown of a quant mix; the rest is in `--json`.
const MIX_SHOWN: usize = 2;

/// The models, then what is wrong and worth knowing.
pub fn list(listings: &[ModelListing], style: Style) -> String {
    let models: Vec<&ModelInfo> = listings.iter().filter_map(|l| l.model.as_ref()).collect();
    let mut text = String::new();
    if models.is_empty() {
        text.push_str("No model found.\n");
    } else {
        text.push_str(&table(&models, style));
    }
    let broken: Vec<&ModelListing> = listings.iter().filter(|l| l.problem.is_some()).collect();
    if !broken.is_empty() {
        let _ = writeln!(
            text,
            "\n{}",
            style.heading(&format!(
                "{} cannot be used",
                count(broken.len() as u64, "file")
            ))
        );
    }
    for listing in broken {
        let problem = clean(listing.problem.as_deref().unwrap_or_default());
        let _ = writeln!(
            text,
            "  {problem}: {}",
            clean(&listing.path.display().to_string())
        );
    }
    for model in models {
        for notice in &model.notices {
            let _ = writeln!(text, "note: {}: {}", clean(&model.name), clean(notice));
        }
    }
    text
}

fn table(models: &[&ModelInfo], style: Style) -> String {
    let mut table = Table::new(&[
        ("Name", Align::Left),
        ("Architecture", Align::Left),
        ("Parameters", Align::Right),
        ("Quant mix", Align::Left),
        ("Size", Align::Right),
        ("Needs (4096 context)", Align::Right),
        ("File", Align::Left),
    ]);
    for model in models {
        table.row([
            clean(&model.name),
            architecture(model),
            parameters(model.parameters),
            mix(model),
            model.file_bytes.to_string(),
            need_text(model),
            file(model),
        ]);
    }
    table.render(0, style)
}

fn architecture(model: &ModelInfo) -> String {
    let name = clean(&model.architecture);
    match model.kind {
        ModelKind::Projector => format!("{name} (projector)"),
        ModelKind::VocabularyOnly => format!("{name} (vocabulary only)"),
        ModelKind::Model if model.experts > 0 => {
            format!("{name}, {}", count(model.experts.into(), "expert"))
        }
        ModelKind::Model => name,
    }
}

fn mix(model: &ModelInfo) -> String {
    let total: Bytes = model.quant_mix.iter().map(|(_, bytes)| *bytes).sum();
    let share = |bytes: Bytes| 100.0 * bytes.0 as f64 / total.0.max(1) as f64;
    let shown: Vec<String> = model
        .quant_mix
        .iter()
        .take(MIX_SHOWN)
        .map(|(name, bytes)| format!("{} {:.0} %", clean(name), share(*bytes)))
        .collect();
    let more = if model.quant_mix.len() > MIX_SHOWN {
        ", …"
    } else {
        ""
    };
    format!("{}{more}", shown.join(", "))
}

fn need_text(model: &ModelInfo) -> String {
    if model.kind != ModelKind::Model {
        return "–".to_owned();
    }
    match needs(model) {
        (bytes, true) => bytes.to_string(),
        (bytes, false) => format!("{bytes} + KV"),
    }
}

fn file(model: &ModelInfo) -> String {
    let path = clean(&model.path.display().to_string());
    match model.parts.len() {
        0 | 1 => path,
        parts => format!("{path} ({parts} parts)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::models::qwen3_4b;
    use std::path::PathBuf;

    #[test]
    fn good_files_are_a_table_and_broken_ones_say_what_is_wrong() {
        let listings = [
            ModelListing {
                path: qwen3_4b().path,
                model: Some(qwen3_4b()),
                problem: None,
            },
            ModelListing {
                path: PathBuf::from("/m/b\u{1b}[31m.gguf"),
                model: None,
                problem: Some("ends inside the tensor table".to_owned()),
            },
        ];
        assert_eq!(
            list(&listings, Style::PLAIN),
            "Name      Architecture  Parameters  Quant mix                 Size  Needs (4096 context)  File\n\
             Qwen3 4B  qwen3             4.02 B  Q4_K 75 %, Q6_K 25 %  2.00 GiB              2.56 GiB  /m/a.gguf\n\
             \n1 file cannot be used\n\
             \x20 ends inside the tensor table: /m/b\\u{1b}[31m.gguf\n"
        );
    }
}
