//! JSON numbers, and their form by Python's `repr`.

use std::io::Write;

const LARGEST_PLAIN: f64 = 1e16; // from here on, and below the next, `repr` writes an exponent
const SMALLEST_PLAIN: f64 = 1e-4;
const DIGITS_OF_EVERY_U64: usize = 19;
const DIGITS_OF_EVERY_I64: usize = 18;
const DIGITS_THAT_A_DOUBLE_KEEPS: usize = 15;

/// A number at the beginning of a text.
pub enum Number {
    /// Its number of bytes.
    Integer(usize),
    Decimal {
        size: usize,
        /// Whether it is its own canonical form.
        as_sent: bool,
    },
}

/// Reads a number; None if it is invalid, or left to Python.
#[inline]
pub fn number(rest: &[u8]) -> Option<Number> {
    let sign = usize::from(rest.first() == Some(&b'-'));
    let whole = digits(&rest[sign..]);
    if whole == 0 || whole > DIGITS_OF_EVERY_U64 || (whole > 1 && rest[sign] == b'0') {
        return None;
    }
    let point = sign + whole;
    match rest.get(point) {
        Some(b'e' | b'E') => return None,
        Some(b'.') => {}
        _ => {
            let minus = sign == 1;
            if minus && (rest[sign] == b'0' || whole > DIGITS_OF_EVERY_I64) {
                return None;
            }
            return Some(Number::Integer(point));
        }
    }
    let fraction = &rest[point + 1..];
    let fraction = &fraction[..digits(fraction)];
    let size = point + 1 + fraction.len();
    if fraction.is_empty() || matches!(rest.get(size), Some(b'e' | b'E')) {
        return None;
    }
    let as_sent = is_repr(&rest[sign..point], fraction);
    Some(Number::Decimal { size, as_sent })
}

/// Writes a decimal as `repr` does; None if the form is not certain.
pub fn write_decimal(text: &mut Vec<u8>, token: &[u8]) -> Option<()> {
    let digits = token.iter().filter(|byte| byte.is_ascii_digit());
    if digits.skip_while(|byte| **byte == b'0').count() > DIGITS_OF_EVERY_U64 {
        return None;
    }
    let value: f64 = std::str::from_utf8(token).ok()?.parse().ok()?;
    if value != 0.0 && !(SMALLEST_PLAIN..LARGEST_PLAIN).contains(&value.abs()) {
        return None;
    }
    let start = text.len();
    write!(text, "{value}").ok()?;
    match text[start..].iter().position(|byte| *byte == b'.') {
        Some(point) if is_half_way(value, text.len() - start - point - 1) => return None,
        Some(_) => {}
        None => text.extend_from_slice(b".0"),
    }
    Some(())
}

#[inline]
fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Whether `value` is halfway between two decimals with this number of decimal places.
///
/// If both are shortest, `repr` chooses the even one, and other libraries either.
fn is_half_way(value: f64, decimals: usize) -> bool {
    let bits = value.to_bits();
    let mantissa = bits & ((1 << 52) - 1) | 1 << 52;
    let exponent = (bits >> 52) as usize & 0x7ff;
    // The value is mantissa / 2^(1075 - exponent), and 10^decimals has as many factors of 2.
    mantissa.trailing_zeros() as usize + decimals + 1 + exponent == 1075
}

/// Whether `repr` certainly writes `whole.fraction`, because so few digits are never rounded.
fn is_repr(whole: &[u8], fraction: &[u8]) -> bool {
    let plain_size = whole != b"0" || fraction == b"0" || {
        let zeros = fraction.iter().take_while(|digit| **digit == b'0').count();
        zeros < 4 && zeros < fraction.len()
    };
    whole.len() + fraction.len() <= DIGITS_THAT_A_DOUBLE_KEEPS
        && (fraction.len() == 1 || fraction.last() != Some(&b'0'))
        && plain_size
}
