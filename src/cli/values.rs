//! Values of arguments that need more than one word to check.

use crate::domain::types::{Bytes, RequestShape};

/// `1500,300`.
///
/// # Errors
/// Anything but two positive numbers.
pub fn request_shape(text: &str) -> Result<RequestShape, String> {
    let bad = || "expected prompt and generated tokens, e.g. 1500,300".to_owned();
    let (prompt, generated) = text.split_once(',').ok_or_else(bad)?;
    let tokens = |part: &str| match part.trim().parse::<u32>() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(bad()),
    };
    Ok(RequestShape {
        prompt_tokens: tokens(prompt)?,
        generated_tokens: tokens(generated)?,
    })
}

/// Seconds of `90`, `90s`, `30m`, `1h`, `1h30m`.
///
/// # Errors
/// Anything else, and no time at all.
pub fn duration_secs(text: &str) -> Result<f64, String> {
    let bad = || "expected a time such as 30m, 1h30m or 90 (seconds)".to_owned();
    let mut secs = 0.0;
    let mut number = String::new();
    for c in text.trim().chars() {
        let unit = match c {
            'h' => 3600.0,
            'm' => 60.0,
            's' => 1.0,
            _ => {
                number.push(c);
                continue;
            }
        };
        secs += plain_number(&number).ok_or_else(bad)? * unit;
        number.clear();
    }
    if !number.is_empty() {
        secs += plain_number(&number).ok_or_else(bad)?;
    }
    if secs > 0.0 { Ok(secs) } else { Err(bad()) }
}

/// Bytes of `6GiB`, `6G`, `6144MiB`, `6.5 GB`: binary units, decimal where the name is (`GB`, `MB`); a bare number is bytes.
///
/// # Errors
/// Anything else, and nothing at all.
pub fn size(text: &str) -> Result<Bytes, String> {
    let bad = || "expected a size such as 6GiB, 6144MiB or 1.37GB".to_owned();
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return Err(bad()),
    };
    let bytes = plain_number(number).ok_or_else(bad)? * unit;
    if (1.0..1e18).contains(&bytes) {
        Ok(Bytes(bytes.round() as u64))
    } else {
        Err(bad())
    }
}

/// Digits with at most one point: no sign, no exponent, no `inf`.
fn plain_number(text: &str) -> Option<f64> {
    let plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_usual_form() {
        for (text, secs) in [
            ("90", 90.0),
            ("90s", 90.0),
            ("30m", 1800.0),
            ("1h", 3600.0),
            ("1h30m", 5400.0),
            ("0.5h", 1800.0),
        ] {
            assert_eq!(duration_secs(text), Ok(secs), "{text}");
        }
        for text in ["", "0", "-5", "m", "1x", "inf", "nan", "1e3", "1..2"] {
            assert!(duration_secs(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_request_is_two_positive_numbers() {
        assert_eq!(
            request_shape("1000,200"),
            Ok(RequestShape {
                prompt_tokens: 1000,
                generated_tokens: 200
            })
        );
        for text in ["1000", "0,5", "5,", "1,2,3", "a,b"] {
            assert!(request_shape(text).is_err(), "{text}");
        }
    }
}
