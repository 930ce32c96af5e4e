//! Text as one cell of a CSV file (RFC 4180) that no spreadsheet takes for a formula.

use super::clean;

/// What begins a formula in a spreadsheet, or in one that takes wide characters for their narrow form. A tab or a line's
/// end, which would be skipped on the way to one, is never sent (see [`clean`]).
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// A cell of text: an apostrophe before what would be a formula says that it is text (OWASP, "CSV injection"). Numbers
/// are no matter of this function.
pub fn csv_cell(text: &str) -> String {
    let text = clean(text);
    if text.trim_start().starts_with(FORMULA) {
        return format!("\"'{}\"", text.replace('"', "\"\""));
    }
    if text.contains([',', '"']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::csv_cell;

    #[test]
    fn commas_and_quotes_are_quoted() {
        assert_eq!(csv_cell("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(csv_cell("tg128 @ d4096"), "tg128 @ d4096");
        assert_eq!(csv_cell(""), "");
    }

    #[test]
    fn no_text_is_a_formula() {
        assert_eq!(
            csv_cell("=HYPERLINK(\"http://x\",A1)"),
            "\"'=HYPERLINK(\"\"http://x\"\",A1)\""
        );
        assert_eq!(csv_cell("@SUM(1)"), "\"'@SUM(1)\"");
        assert_eq!(csv_cell("+1"), "\"'+1\"");
        assert_eq!(csv_cell("-1"), "\"'-1\"");
        assert_eq!(csv_cell("  =1"), "\"'  =1\"");
        assert_eq!(csv_cell("＝1"), "\"'＝1\"");
        // Begins with a backslash now.
        assert_eq!(csv_cell("\t=1"), "\\u{9}=1");
        assert_eq!(csv_cell("\r\n=1"), "\\u{d}\\u{a}=1");
        assert_eq!(csv_cell("a=1"), "a=1");
    }
}
