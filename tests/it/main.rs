//! Black-box tests: the binary, as people and proxies use it.
