//! The address of a client, as the limits per address count it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A client address: an IPv4 address, or the first 64 bits of an IPv6 address.
///
/// A network gives each of its hosts a whole /64, so one IPv6 client has 2^64 addresses. A dual-stack
/// socket reports an IPv4 client as `::ffff:a.b.c.d`, which is the same client as `a.b.c.d`. Loopback
/// is an address like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientAddress(IpAddr);

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> ClientAddress {
        ClientAddress(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from((u128::from(address) >> 64) << 64)),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

impl fmt::Display for ClientAddress {
    /// An IPv6 address ends with `::`, because its last 64 bits are not known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_client_are_equal() {
        let table = [
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.2", false),
            ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true),
            ("2001:db8:1:2::1", "2001:db8:1:3::1", false),
            ("::1", "127.0.0.1", false),
        ];
        for (one, other, equal) in table {
            let [a, b] =
                [one, other].map(|text| ClientAddress::from(text.parse::<IpAddr>().unwrap()));
            assert_eq!(a == b, equal, "{one} {other}");
        }
    }

    #[test]
    fn an_address_is_shown_without_the_host_of_a_network() {
        for (address, shown) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            let address = ClientAddress::from(address.parse::<IpAddr>().unwrap());
            assert_eq!(address.to_string(), shown);
        }
    }
}
