//! Capacity planning: the scheduler in virtual time.
