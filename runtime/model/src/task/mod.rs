//! A task as the scheduler sees it: what it asks for, and its state.
