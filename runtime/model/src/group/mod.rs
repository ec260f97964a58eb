//! Placement groups: bundles of resources that are reserved together.
