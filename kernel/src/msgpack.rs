//! MessagePack as msgspec writes it: each value in its shortest encoding.

/// The kinds of values with a size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Size {
    Array,
    Bin,
    Str,
}

/// None if the size is too large for MessagePack.
#[inline]
pub fn write_size(into: &mut Vec<u8>, what: Size, size: usize) -> Option<()> {
    let size = u32::try_from(size).ok()?;
    // the markers for sizes in the marker itself, and of 8, 16 and 32 bits
    let (short, bits_8, bits_16, bits_32) = match what {
        Size::Array => (Some((0x90, 15)), None, 0xdc, 0xdd),
        Size::Bin => (None, Some(0xc4), 0xc5, 0xc6),
        Size::Str => (Some((0xa0, 31)), Some(0xd9), 0xda, 0xdb),
    };
    match (short, bits_8) {
        (Some((mark, most)), _) if size <= most => into.push(mark | size as u8),
        (_, Some(mark)) if size <= 0xff => into.extend_from_slice(&[mark, size as u8]),
        _ if size <= 0xffff => {
            let [high, low] = (size as u16).to_be_bytes();
            into.extend_from_slice(&[bits_16, high, low]);
        }
        _ => {
            into.push(bits_32);
            into.extend_from_slice(&size.to_be_bytes());
        }
    }
    Some(())
}

/// None if the text is too long for MessagePack.
#[inline]
pub fn write_text(into: &mut Vec<u8>, text: &str) -> Option<()> {
    match text.len() {
        length @ 0..=31 => into.push(0xa0 | length as u8), // most are
        length => write_size(into, Size::Str, length)?,
    }
    into.extend_from_slice(text.as_bytes());
    Some(())
}

#[inline]
pub fn write_integer(into: &mut Vec<u8>, number: i64) {
    let bytes = number.to_be_bytes();
    let (mark, length) = match number {
        -0x20..=0x7f => return into.push(number as u8),
        0x80..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000..=i64::MAX => (0xcf, 8),
        -0x80..=-0x21 => (0xd0, 1),
        -0x8000..=-0x81 => (0xd1, 2),
        -0x8000_0000..=-0x8001 => (0xd2, 4),
        i64::MIN..=-0x8000_0001 => (0xd3, 8),
    };
    into.push(mark);
    into.extend_from_slice(&bytes[8 - length..]);
}
