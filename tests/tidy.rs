//! The house rules that the compiler cannot check.

#[test]
fn nothing_yet() {}
