//! Step files.
