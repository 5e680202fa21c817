//! What a comparison of two results finds.

/// `verify.VERDICTS`, in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    PartsDiffer,
    IdsDiffer,
    IdsEqual,
    UrlDiffers,
    UrlEqual,
    TextEqual,
    TextDiffers,
    FieldsDiffer,
    FieldsText,
    FieldsEqual,
    Inconclusive,
}

pub const VERDICTS: [Verdict; 11] = [
    Verdict::PartsDiffer,
    Verdict::IdsDiffer,
    Verdict::IdsEqual,
    Verdict::UrlDiffers,
    Verdict::UrlEqual,
    Verdict::TextEqual,
    Verdict::TextDiffers,
    Verdict::FieldsDiffer,
    Verdict::FieldsText,
    Verdict::FieldsEqual,
    Verdict::Inconclusive,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    Id,
    Url,
    Text,
    Fields,
}

impl Verdict {
    pub fn step(self) -> &'static str {
        match self {
            Verdict::PartsDiffer => "segment",
            Verdict::IdsDiffer | Verdict::IdsEqual => "ids",
            Verdict::UrlDiffers | Verdict::UrlEqual => "url",
            Verdict::TextEqual | Verdict::TextDiffers => "text",
            Verdict::FieldsDiffer
            | Verdict::FieldsText
            | Verdict::FieldsEqual
            | Verdict::Inconclusive => "fields",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Verdict::Inconclusive => "inconclusive",
            _ if self.evidence().is_some() => "duplicate",
            _ => "different",
        }
    }

    /// The evidence for a duplicate.
    pub fn evidence(self) -> Option<Evidence> {
        match self {
            Verdict::IdsEqual => Some(Evidence::Id),
            Verdict::UrlEqual => Some(Evidence::Url),
            Verdict::TextEqual | Verdict::FieldsText => Some(Evidence::Text),
            Verdict::FieldsEqual => Some(Evidence::Fields),
            _ => None,
        }
    }
}
