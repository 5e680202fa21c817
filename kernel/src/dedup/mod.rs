//! Deduplication: the compiled form of `stream_metrics.core.dedup`.
//!
//! From bottom to top, the order is `sent`, `text`, `url`, `verdict`, `shared_key`; `forms`,
//! `digests`; `tables`; `print`; `memo`, `pack`, `identifiers`; `make`, `verify`; `index`. A module
//! uses only those before it, and never this one. `crate::deduplicator` puts them together.

pub mod digests;
mod forms;
mod identifiers;
pub mod index;
pub mod make;
pub mod memo;
pub mod pack;
pub mod print;
pub mod sent;
mod shared_key;
pub mod tables;
mod text;
mod url;
mod verdict;
mod verify;
