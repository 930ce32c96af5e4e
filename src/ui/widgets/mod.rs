//! The few widgets Flux is made of. Each has an accessible name; none changes anything but what it returns.

mod button;
mod card;
mod form;
mod mark;
mod slider;
mod state;
mod table;
mod text;

pub use button::{Press, focus_ring};
pub use card::{Card, columns, page_header};
pub use form::{choice, field, number, progress, search_field, segmented, select, toggle};
pub use mark::{badge, chip, level_mark, status, verdict_badge};
pub use slider::slider;
pub use state::{Loadable, empty, failed, loading_note, notice_line};
pub use table::{Cells, Column, Table, Width};
pub use text::{
    caption, caption_text, caption_width, code, label, muted, section, strong, tinted,
    title as heading,
};
