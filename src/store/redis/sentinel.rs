//! Finds a primary through its sentinels
//! (<https://redis.io/docs/latest/develop/reference/sentinel-clients/>).

use super::config::{HostPort, RedisAccess, Sentinels, address_text};
use super::error::{ConnectionError, is_host};
use super::reply::{Reply, ReplyBound};
use super::session::RedisSession;

/// The most sentinels that are kept besides those of the URL.
const OTHERS_MAX: usize = 32;

/// Connects to the primary that the first replying sentinel names. `others` are sentinels that were
/// found before. Those that this sentinel names replace them.
///
/// # Errors
/// The error of every sentinel, or of the primary that it named.
pub(super) async fn open_primary(
    sentinels: &Sentinels,
    others: &mut Vec<HostPort>,
    access: &RedisAccess,
) -> Result<RedisSession, ConnectionError> {
    let known: Vec<HostPort> = sentinels.hosts.iter().chain(others.iter()).cloned().collect();
    let mut errors = Vec::new();
    for address in known {
        match open_named_by(&address, sentinels, others, access).await {
            Ok(session) => return Ok(session),
            Err(error) => errors.push(error.to_string()),
        }
    }
    Err(ConnectionError::new(errors.join("; ")))
}

/// Connects to the primary that the sentinel at `address` names.
async fn open_named_by(
    address: &HostPort,
    sentinels: &Sentinels,
    others: &mut Vec<HostPort>,
    access: &RedisAccess,
) -> Result<RedisSession, ConnectionError> {
    let at = |error: ConnectionError| error.at(&format!("sentinel {}", address_text(address)));
    let mut sentinel = RedisSession::connect(address, access.tls.as_ref()).await.map_err(at)?;
    sentinel.authenticate(&sentinels.credentials).await.map_err(at)?;
    let service = sentinels.service.as_bytes();
    let words: [&[u8]; 3] = [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service];
    let reply = sentinel.request(&words).await.map_err(at)?;
    let unknown = || at(ConnectionError::new("it knows no primary of this sentinelServiceName"));
    let primary = primary(&reply).ok_or_else(unknown)?;
    // Without the others, the sentinels of the URL still lead to the primary.
    if let Ok(reply) = sentinel.request(&[b"SENTINEL", b"SENTINELS", service]).await {
        *others = other_sentinels(&reply);
        // A sentinel does not name itself.
        others.push(address.clone());
        others.retain(|other| !sentinels.hosts.contains(other));
    }
    let of_primary = |error: ConnectionError| error.at(&address_text(&primary));
    let mut session = RedisSession::open(&primary, access).await.map_err(of_primary)?;
    // The named server may be a replica by now. The user may lack the right to ROLE; then the first
    // write fails.
    let role = session.exchange(&[b"ROLE"], ReplyBound::USUAL).await.map_err(of_primary)?;
    if let Reply::Array(role) = role
        && role.first().and_then(Reply::text) != Some("master")
    {
        return Err(of_primary(ConnectionError::new("it is not a primary yet")));
    }
    Ok(session)
}

/// Parses the reply of `SENTINEL GET-MASTER-ADDR-BY-NAME`: host and port.
pub(super) fn primary(reply: &Reply) -> Option<HostPort> {
    let Reply::Array(parts) = reply else { return None };
    let [host, port] = parts.as_slice() else { return None };
    host_port(host.text()?, port)
}

/// Parses the reply of `SENTINEL SENTINELS`: a list of fields and values per sentinel.
pub(super) fn other_sentinels(reply: &Reply) -> Vec<HostPort> {
    let Reply::Array(sentinels) = reply else { return Vec::new() };
    let address = |sentinel: &Reply| {
        let Reply::Array(fields) = sentinel else { return None };
        let value = |name: &str| {
            let mut pairs = fields.chunks_exact(2);
            pairs.find(|pair| pair[0].text() == Some(name)).map(|pair| &pair[1])
        };
        host_port(value("ip")?.text()?, value("port")?)
    };
    sentinels.iter().filter_map(address).take(OTHERS_MAX - 1).collect()
}

fn host_port(host: &str, port: &Reply) -> Option<HostPort> {
    let port = u16::try_from(port.number()?).ok()?;
    (!host.is_empty() && is_host(host)).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[&'static str]) -> Reply {
        let text = |item: &&'static str| Reply::Text(item.as_bytes().into());
        Reply::Array(items.iter().map(text).collect())
    }

    #[test]
    fn a_sentinel_names_a_primary_or_none() {
        assert_eq!(primary(&list(&["10.0.0.1", "6379"])), Some(("10.0.0.1".into(), 6379)));
        let bad = [
            Reply::Nil,
            list(&["a"]),
            list(&["a", "70000"]),
            list(&["", "1"]),
            list(&["a\nb", "1"]),
        ];
        for reply in bad {
            assert_eq!(primary(&reply), None, "{reply:?}");
        }
    }

    #[test]
    fn other_sentinels_are_found_and_bounded() {
        let one = list(&["name", "x", "ip", "10.0.0.2", "port", "26379", "flags", "sentinel"]);
        let reply = Reply::Array(vec![one.clone(), Reply::Nil, list(&["ip"]), one.clone()]);
        assert_eq!(other_sentinels(&reply), vec![("10.0.0.2".to_owned(), 26_379); 2]);
        assert_eq!(other_sentinels(&Reply::Array(vec![one; 100])).len(), OTHERS_MAX - 1);
        assert_eq!(other_sentinels(&Reply::Nil), vec![]);
    }
}
