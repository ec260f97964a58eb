//! The cluster as a scheduler sees it: nodes, labels, and the choice between them.
