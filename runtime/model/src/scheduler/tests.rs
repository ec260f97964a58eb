//! Every rule of the scheduler by itself, on a small harness; and random events.

mod random;
