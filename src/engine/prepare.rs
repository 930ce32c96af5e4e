//! From a request to everything a measuring job needs.
