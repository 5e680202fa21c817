//! Times in microseconds: the compiled form of `stream_metrics.core.events.times`.

const MICROS: i64 = 1_000_000;
const EVERY_INTEGER_IS_A_DOUBLE: i64 = 1 << 53; // up to here
const EPOCH_DAYS: i64 = 719_528; // days from 0000-01-01 to 1970-01-01 in the proleptic calendar
const DAYS_BEFORE_MONTH: [i64; 13] = [0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
const DAYS_IN_MONTH: [i64; 13] = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// The value of `text[from..to]` if it is all ASCII digits.
fn number(text: &[u8], from: usize, to: usize) -> Option<i64> {
    text.get(from..to)?.iter().try_fold(0, |value, byte| {
        byte.is_ascii_digit()
            .then(|| value * 10 + i64::from(byte - b'0'))
    })
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days(year: i64, month: usize, day: i64) -> i64 {
    let leaps = (year + 3) / 4 - (year + 99) / 100 + (year + 399) / 400;
    let after_february = i64::from(month > 2 && is_leap(year));
    365 * year + leaps + DAYS_BEFORE_MONTH[month] + after_february + day - 1 - EPOCH_DAYS
}

/// The time of an RFC 3339 date-time in microseconds since 1970; None if it is not one.
///
/// See `stream_metrics.core.events.times.parse_rfc3339`.
pub fn rfc3339_micros(text: &[u8]) -> Option<i64> {
    let (year, month, day) = (
        number(text, 0, 4)?,
        number(text, 5, 7)?,
        number(text, 8, 10)?,
    );
    let (hour, minute) = (number(text, 11, 13)?, number(text, 14, 16)?);
    let second = number(text, 17, 19)?;
    if (text[4], text[7], text[13], text[16]) != (b'-', b'-', b':', b':')
        || !matches!(text[10], b'T' | b't')
    {
        return None;
    }
    let month = usize::try_from(month).ok()?;
    if !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 || day < 1 {
        return None;
    }
    if day > DAYS_IN_MONTH[month] && !(month == 2 && day == 29 && is_leap(year)) {
        return None;
    }
    let mut rest = &text[19..];
    let mut micros = 0;
    if let Some((b'.', fraction)) = rest.split_first() {
        let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        let padded = fraction[..digits].iter().chain(b"00000").take(6);
        micros = padded.fold(0, |value, byte| value * 10 + i64::from(byte - b'0'));
        rest = &fraction[digits..];
    }
    let offset = match rest {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let (hours, minutes) = (number(rest, 1, 3)?, number(rest, 4, 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = hours * 3600 + minutes * 60;
            if *sign == b'+' {
                offset
            } else {
                -offset
            }
        }
        _ => return None,
    };
    let of_day = hour * 3600 + minute * 60 + second;
    Some((days(year, month, day) * 86_400 + of_day - offset) * MICROS + micros)
}

/// A JSON number of Unix seconds in microseconds, rounded half to even; None unless it is plain.
///
/// Plain numbers are integers up to 2^53 and decimals without an exponent, from 1e-4 to 1e16.
pub fn micros_of_seconds(number: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(number).ok()?;
    if !number.contains(&b'.') {
        let seconds: i64 = text.parse().ok()?;
        let exact = -EVERY_INTEGER_IS_A_DOUBLE..=EVERY_INTEGER_IS_A_DOUBLE;
        return exact
            .contains(&seconds)
            .then_some(seconds)?
            .checked_mul(MICROS);
    }
    let seconds: f64 = text.parse().ok()?;
    if seconds == 0.0 {
        return Some(0);
    }
    if !(1e-4..1e16).contains(&seconds.abs()) {
        return None;
    }
    // The double is mantissa / 2^shift, where shift is -1 to 66.
    let bits = seconds.abs().to_bits();
    let mantissa = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
    let shift = 1075 - i32::try_from(bits >> 52).ok()?;
    let product = mantissa * 2 * 1_000_000; // of which the last bit is added, so as to shift by > 0
    let shift = u32::try_from(shift + 1).ok()?;
    let mut micros = product >> shift;
    let twice_rest = (product - (micros << shift)) * 2;
    if twice_rest > 1 << shift || (twice_rest == 1 << shift && micros & 1 == 1) {
        micros += 1;
    }
    let micros = i64::try_from(micros).ok()?;
    Some(if seconds < 0.0 { -micros } else { micros })
}
