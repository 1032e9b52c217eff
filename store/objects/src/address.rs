//! Which addresses a URL of a job may lead to.
//!
//! They are looked at when a connection is made, behind the resolution of the name: a name that stands for an address inside is refused
//! as that address is, whenever it begins to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Amazon's service of keys has a unique local address, too.
const AMAZON_METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Addresses that may be connected to: those of the public Internet, and of the networks that are named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    any: bool,
    named: Vec<IpNet>,
}

/// What is no network.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is no network: `10.0.0.0/8`, `192.168.1.7` and `fd00::/8` are")]
pub struct AddressesError {
    text: String,
}

impl Addresses {
    /// All addresses, but the link-local ones: those of a person's own process, who reaches them anyway. Machines in clouds tell their keys
    /// at a link-local address.
    pub fn any() -> Self {
        Self { any: true, named: Vec::new() }
    }

    /// The public ones, and those of these networks, or single addresses.
    ///
    /// # Errors
    /// A text is none.
    pub fn public_and(networks: &[String]) -> Result<Self, AddressesError> {
        let network = |text: &String| {
            let single = || IpAddr::from_str(text).map(IpNet::from);
            IpNet::from_str(text).or_else(|_| single()).map_err(|_| AddressesError { text: text.clone() })
        };
        Ok(Self { any: false, named: networks.iter().map(network).collect::<Result<_, _>>()? })
    }

    /// Whether an address may be connected to.
    pub(crate) fn allow(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_named = self.named.iter().any(|network| network.contains(&address));
        is_named || if self.any { !is_link_local(address) } else { is_public(address) }
    }
}

/// Whether machines in clouds may tell their keys there.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address == AMAZON_METADATA,
    }
}

/// Whether an address is one of the public Internet (the IANA special-purpose registries have those that are not).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_shared = first == 100 && second & 0xc0 == 64;
    let is_for_benchmarks = first == 198 && second & 0xfe == 18;
    let is_of_protocols = first == 192 && second == 0 && third == 0;
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || first == 0
        || first >= 240
        || is_shared
        || is_for_benchmarks
        || is_of_protocols)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // Those of NAT64 and of 6to4 stand for an address of IPv4.
    let stands_for = match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
        }
        _ => None,
    };
    let is_global = first & 0xe000 == 0x2000 || stands_for.is_some();
    // Documentation, and what is of protocols: Teredo, benchmarks, ORCHID.
    let is_special = first == 0x2001 && (second == 0xdb8 || second < 0x200) || first == 0x3fff;
    is_global && !is_special && stands_for.is_none_or(is_public_v4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(addresses: &Addresses, all: &[&str]) -> Vec<bool> {
        all.iter().map(|address| addresses.allow(address.parse().unwrap())).collect()
    }

    #[test]
    fn addresses_inside_are_refused_however_they_are_written() {
        let inside = [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "192.0.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "::ffff:127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001:0:5ef5:79fd::1",
            "ff02::1",
        ];
        assert!(allows(&Addresses::default(), &inside).iter().all(|allowed| !allowed), "{inside:?}");
        let outside = ["8.8.8.8", "52.216.0.1", "2600:9000::1", "64:ff9b::808:808"];
        assert!(allows(&Addresses::default(), &outside).iter().all(|allowed| *allowed), "{outside:?}");
    }

    #[test]
    fn named_networks_are_allowed_and_no_others() {
        let named = Addresses::public_and(&["10.1.0.0/16".into(), "127.0.0.1".into(), "fd00::/8".into()]).unwrap();
        let asked = ["10.1.2.3", "10.2.0.1", "127.0.0.1", "127.0.0.2", "fd12::1", "8.8.8.8", "169.254.169.254"];
        assert_eq!(allows(&named, &asked), [true, false, true, false, true, true, false]);
        let error = Addresses::public_and(&["10.1.0.0/99".into()]).unwrap_err().to_string();
        assert!(error.contains("10.1.0.0/99"), "{error}");
    }

    #[test]
    fn a_process_of_a_person_reaches_all_but_the_keys_of_a_machine() {
        let asked = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254"];
        assert_eq!(allows(&Addresses::any(), &asked), [true, true, false, false, false, false]);
    }
}
