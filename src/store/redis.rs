//! Counters in Redis: the state machines run there, in Lua.

pub mod script;
