//! Everything that can be done without a page's own controls: one table for palette, shortcuts, tooltips and help.

use eframe::egui::{Context, Key, KeyboardShortcut, Modifiers};

use super::state::Page;

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UiCommand {
    /// Shows a page.
    Go(Page),
    /// Opens the palette.
    Palette,
    /// Scans again.
    Rescan,
    /// Begins a new tuning.
    NewTune,
    /// Looks for earlier results.
    Search,
    /// Larger.
    ZoomIn,
    /// Smaller.
    ZoomOut,
    /// As the screen says.
    ZoomReset,
    /// Dark, light, dark.
    SwitchTheme,
    /// Lists the keys.
    Keys,
    /// Leaves.
    Quit,
}

/// How a command is shown and called.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// What it does.
    pub command: UiCommand,
    /// In the palette.
    pub name: &'static str,
    /// Key, where it has one.
    pub shortcut: Option<KeyboardShortcut>,
}

const fn with(modifiers: Modifiers, key: Key) -> KeyboardShortcut {
    KeyboardShortcut::new(modifiers, key)
}

const fn entry(
    command: UiCommand,
    name: &'static str,
    shortcut: Option<KeyboardShortcut>,
) -> Entry {
    Entry {
        command,
        name,
        shortcut,
    }
}

/// Every command.
pub const ENTRIES: &[Entry] = &[
    entry(
        UiCommand::Go(Page::Machine),
        "Go to Machine",
        Some(with(Modifiers::COMMAND, Key::Num1)),
    ),
    entry(
        UiCommand::Go(Page::Tune),
        "Go to Tune",
        Some(with(Modifiers::COMMAND, Key::Num2)),
    ),
    entry(
        UiCommand::Go(Page::Dashboard),
        "Go to Dashboard",
        Some(with(Modifiers::COMMAND, Key::Num3)),
    ),
    entry(
        UiCommand::Go(Page::Placement),
        "Go to Placement",
        Some(with(Modifiers::COMMAND, Key::Num4)),
    ),
    entry(
        UiCommand::Go(Page::History),
        "Go to History",
        Some(with(Modifiers::COMMAND, Key::Num5)),
    ),
    entry(
        UiCommand::Go(Page::Lab),
        "Go to Lab",
        Some(with(Modifiers::COMMAND, Key::Num6)),
    ),
    entry(
        UiCommand::Go(Page::Settings),
        "Go to Settings",
        Some(with(Modifiers::COMMAND, Key::Comma)),
    ),
    entry(
        UiCommand::Palette,
        "Command palette",
        Some(with(Modifiers::COMMAND, Key::K)),
    ),
    entry(
        UiCommand::Rescan,
        "Scan this machine again",
        Some(with(Modifiers::NONE, Key::F5)),
    ),
    entry(
        UiCommand::NewTune,
        "Tune a model",
        Some(with(Modifiers::COMMAND, Key::T)),
    ),
    entry(
        UiCommand::Search,
        "Search the history",
        Some(with(Modifiers::COMMAND, Key::F)),
    ),
    entry(
        UiCommand::ZoomIn,
        "Larger text and controls",
        Some(with(Modifiers::COMMAND, Key::Plus)),
    ),
    entry(
        UiCommand::ZoomOut,
        "Smaller text and controls",
        Some(with(Modifiers::COMMAND, Key::Minus)),
    ),
    entry(
        UiCommand::ZoomReset,
        "Usual size of text and controls",
        Some(with(Modifiers::COMMAND, Key::Num0)),
    ),
    entry(
        UiCommand::SwitchTheme,
        "Switch between dark and light",
        None,
    ),
    entry(
        UiCommand::Keys,
        "Show the keys",
        Some(with(Modifiers::NONE, Key::F1)),
    ),
    entry(
        UiCommand::Quit,
        "Quit Flux",
        Some(with(Modifiers::COMMAND, Key::Q)),
    ),
];

/// The commands whose keys were pressed in this frame.
pub fn pressed(ctx: &Context) -> Vec<UiCommand> {
    let plain_pages = plain_page_keys(ctx);
    let by_key = ENTRIES.iter().filter(|entry| {
        entry
            .shortcut
            .is_some_and(|keys| ctx.input_mut(|input| input.consume_shortcut(&keys)))
    });
    by_key
        .map(|entry| entry.command)
        .chain(plain_pages)
        .collect()
}

/// 1 to 6 alone, where no text is being typed.
fn plain_page_keys(ctx: &Context) -> Option<UiCommand> {
    if ctx.text_edit_focused() {
        return None;
    }
    let keys = [
        (Key::Num1, Page::Machine),
        (Key::Num2, Page::Tune),
        (Key::Num3, Page::Dashboard),
        (Key::Num4, Page::Placement),
        (Key::Num5, Page::History),
        (Key::Num6, Page::Lab),
    ];
    keys.into_iter()
        .find(|(key, _)| ctx.input_mut(|input| input.consume_key(Modifiers::NONE, *key)))
        .map(|(_, page)| UiCommand::Go(page))
}

/// Entries whose name holds every word of `text`, in the table's order.
pub fn matching(text: &str) -> Vec<&'static Entry> {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    ENTRIES
        .iter()
        .filter(|entry| {
            let name = entry.name.to_lowercase();
            words.iter().all(|word| name.contains(word))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_commands_share_a_key_or_a_name() {
        for (at, entry) in ENTRIES.iter().enumerate() {
            for other in &ENTRIES[at + 1..] {
                assert_ne!(entry.name, other.name);
                assert_ne!(entry.command, other.command);
                if entry.shortcut.is_some() {
                    assert_ne!(entry.shortcut, other.shortcut, "{}", entry.name);
                }
            }
        }
    }

    #[test]
    fn the_palette_finds_by_words_in_any_order() {
        let found = |text| matching(text).iter().map(|e| e.command).collect::<Vec<_>>();
        assert_eq!(found("history go"), [UiCommand::Go(Page::History)]);
        assert_eq!(found("SEARCH"), [UiCommand::Search]);
        assert_eq!(found("").len(), ENTRIES.len());
        assert!(found("nonsense").is_empty());
    }
}
