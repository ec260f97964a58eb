//! Sharing between tenants: max-min, dominant resource fairness, guarantees.
