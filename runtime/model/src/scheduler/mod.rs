//! The scheduler: which task starts next, and where.
