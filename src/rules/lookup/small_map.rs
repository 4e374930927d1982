//! A map with text keys that compares up to four keys one by one.
//!
//! Most levels have one to four keys or values, and comparing those is faster than hashing the
//! text: it saves 154 of 3,600 instructions per decision.

use std::sync::Arc;

use hashbrown::HashMap;

/// The most keys that are compared one by one. With more, hashing is faster.
const LINEAR_SCAN_MAX: usize = 4;

/// Values by text.
#[derive(Debug)]
pub(in crate::rules) enum SmallMap<T> {
    /// At most [`LINEAR_SCAN_MAX`] values, in order of insertion.
    Few(Vec<(Arc<str>, T)>),
    /// More than [`LINEAR_SCAN_MAX`] values.
    Many(HashMap<Arc<str>, T>),
}

impl<T> Default for SmallMap<T> {
    fn default() -> Self {
        SmallMap::Few(Vec::new())
    }
}

impl<T> SmallMap<T> {
    /// A map with room for `count` values.
    pub(super) fn with_capacity(count: usize) -> SmallMap<T> {
        match count {
            0..=LINEAR_SCAN_MAX => SmallMap::default(),
            _ => SmallMap::Many(HashMap::with_capacity(count)),
        }
    }

    /// The value of `name`.
    pub(in crate::rules) fn get(&self, name: &str) -> Option<&T> {
        match self {
            SmallMap::Few(few) => few.iter().find(|(known, _)| **known == *name).map(|(_, of)| of),
            SmallMap::Many(many) => many.get(name),
        }
    }

    /// The value of `name`, inserted with `make` if absent.
    pub(in crate::rules) fn entry(&mut self, name: &Arc<str>, make: impl FnOnce() -> T) -> &mut T {
        if let SmallMap::Few(few) = self
            && few.len() == LINEAR_SCAN_MAX
            && few.iter().all(|(known, _)| known != name)
        {
            *self = SmallMap::Many(few.drain(..).collect());
        }
        match self {
            SmallMap::Few(few) => {
                let known = few.iter().position(|(known, _)| known == name);
                let at = known.unwrap_or_else(|| {
                    few.push((name.clone(), make()));
                    few.len() - 1
                });
                &mut few[at].1
            }
            SmallMap::Many(many) => many.entry(name.clone()).or_insert_with(make),
        }
    }

    /// All keys, in no order.
    pub(in crate::rules) fn keys(&self) -> impl Iterator<Item = &str> {
        let (few, many) = match self {
            SmallMap::Few(few) => (&few[..], None),
            SmallMap::Many(many) => (&[][..], Some(many)),
        };
        let many = many.into_iter().flat_map(HashMap::keys);
        few.iter().map(|(name, _)| name).chain(many).map(|name| &**name)
    }

    /// All values, in no order.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let (few, many) = match self {
            SmallMap::Few(few) => (&mut few[..], None),
            SmallMap::Many(many) => (&mut [][..], Some(many)),
        };
        few.iter_mut().map(|(_, of)| of).chain(many.into_iter().flat_map(HashMap::values_mut))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_the_list_and_in_the_map() {
        for count in [0, LINEAR_SCAN_MAX, LINEAR_SCAN_MAX + 1] {
            check_keys(SmallMap::with_capacity(count));
        }
    }

    fn check_keys(mut names: SmallMap<usize>) {
        for number in 0..3 * LINEAR_SCAN_MAX {
            let name: Arc<str> = number.to_string().into();
            assert_eq!(names.get(&name), None);
            assert_eq!(*names.entry(&name, || number), number);
            assert_eq!(*names.entry(&name, || 99), number, "it is there once");
            assert!((0..=number).all(|one| names.get(&one.to_string()) == Some(&one)));
            let mut all: Vec<usize> = names.keys().map(|name| name.parse().unwrap()).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..=number));
            assert_eq!(names.values_mut().count(), number + 1);
        }
        assert_eq!(names.get(""), None);
    }
}
