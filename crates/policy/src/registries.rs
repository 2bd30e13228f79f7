//! What package tools say they fetch from, read out of their settings. Text in, URLs out; the survey opens the
//! files and asks the tools. No host name is known here. Next: the survey fills the set `registries`.

use toml::de::{DeTable, DeValue};

/// What one file or variable says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configured {
    pub urls: Vec<String>,
    /// It names the registry that is used where nothing more special is named.
    pub names_default: bool,
}

impl Configured {
    fn add(&mut self, url: &str) {
        let url = url.trim().trim_matches(['"', '\'']);
        if !url.is_empty() && !self.urls.iter().any(|known| known == url) {
            self.urls.push(url.to_owned());
        }
    }

    /// The other's words after these.
    pub fn join(&mut self, other: Self) {
        other.urls.iter().for_each(|url| self.add(url));
        self.names_default |= other.names_default;
    }
}

/// Host and port of a registry's URL. Only what goes over TCP to a host by http counts: a directory, or git by
/// ssh, is not fetched so.
pub fn host_of(url: &str) -> Option<(String, u16)> {
    let url = url.strip_prefix("sparse+").or_else(|| url.strip_prefix("registry+")).unwrap_or(url);
    let (scheme, rest) = url.split_once("://")?;
    let default = match scheme.to_ascii_lowercase().as_str() {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, after) = v6.split_once(']')?;
            (host, after.strip_prefix(':'))
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None | Some("") => default,
        Some(port) => port.parse().ok().filter(|port| *port != 0)?,
    };
    (!host.is_empty()).then(|| (host.to_ascii_lowercase(), port))
}

/// `key = value` lines, with `#` and `;` comments, under their `[section]`.
fn ini(text: &str) -> impl Iterator<Item = (String, String, String)> + '_ {
    let mut section = String::new();
    let mut key = String::new();
    text.lines().filter_map(move |line| {
        let indented = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            return None;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim().to_ascii_lowercase();
            key.clear();
            return None;
        }
        match line.split_once('=') {
            // An indented URL with a `=` in it goes on with the value before.
            Some((name, value))
                if !(indented && !key.is_empty() && line.contains("://") && name.contains("://")) =>
            {
                key = name.trim().to_ascii_lowercase();
                Some((section.clone(), key.clone(), value.trim().to_owned()))
            }
            Some(_) | None if indented && !key.is_empty() => {
                Some((section.clone(), key.clone(), line.to_owned()))
            }
            Some(_) | None => None,
        }
    })
}

/// `.npmrc`: `registry=`, and `@scope:registry=`.
pub fn npm_settings(text: &str) -> Configured {
    let mut found = Configured::default();
    for (_, key, value) in ini(text) {
        if key == "registry" {
            found.names_default = true;
            found.add(&value);
        } else if key.starts_with('@') && key.ends_with(":registry") {
            found.add(&value);
        }
    }
    found
}

/// `pip.conf`: `index-url`, `extra-index-url` and `find-links` of `[global]`, `[install]` and the like.
pub fn pip_settings(text: &str) -> Configured {
    let mut found = Configured::default();
    for (_, key, value) in ini(text) {
        let key = key.replace('_', "-");
        found.names_default |= key == "index-url";
        if ["index-url", "extra-index-url", "find-links"].contains(&key.as_str()) {
            value.split_whitespace().for_each(|url| found.add(url));
        }
    }
    found
}

/// pip's own file about its default index: `PackageIndex("URL", file_storage_domain="HOST")`. The index named
/// first is the one it uses.
pub fn pip_default(source: &str) -> Configured {
    let mut found = Configured::default();
    let Some((_, call)) = source.split_once("= PackageIndex(") else { return found };
    let call = call.split(')').next().unwrap_or(call);
    for quoted in call.split('"').skip(1).step_by(2) {
        let url = if quoted.contains("://") { quoted.to_owned() } else { format!("https://{quoted}/") };
        found.add(&url);
        found.names_default = true;
    }
    found
}

/// cargo's `config.toml`: `[source.*]` and `[registries.*]`. A replaced default is a default that is named.
pub fn cargo_settings(text: &str) -> Configured {
    let mut found = Configured::default();
    let Ok(table) = DeTable::parse(text) else { return found };
    for (section, key) in [("source", "registry"), ("registries", "index")] {
        let Some(DeValue::Table(entries)) = table.get_ref().get(section).map(toml::Spanned::get_ref) else {
            continue;
        };
        for (_, entry) in entries {
            let DeValue::Table(entry) = entry.get_ref() else { continue };
            found.names_default |= section == "source" && entry.get("replace-with").is_some();
            if let Some(DeValue::String(url)) = entry.get(key).map(toml::Spanned::get_ref) {
                found.add(url);
            }
        }
    }
    found
}

/// The host of an index that cargo keeps below `registry/index`: `HOST-HASH`.
pub fn cargo_index(directory: &str) -> Option<&str> {
    let (host, hash) = directory.rsplit_once('-')?;
    let hashed = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    (hashed && host.contains('.')).then_some(host)
}

/// Where an index says that crates are downloaded from: `dl` of its `config.json`.
pub fn cargo_dl(json: &str) -> Option<String> {
    let (_, rest) = json.split_once("\"dl\"")?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let url = rest.split('"').next()?;
    (!url.contains('\\')).then(|| url.to_owned())
}

/// Go's `GOPROXY` and `GOSUMDB`, from its settings file or from `go env`. `direct` asks each module's own
/// host, which nobody can list beforehand.
pub fn go_settings(text: &str) -> Configured {
    let mut found = Configured::default();
    for (_, key, value) in ini(text) {
        let value = value.trim_matches(['"', '\'']).to_owned();
        match key.as_str() {
            "goproxy" => {
                found.names_default = true;
                value.split([',', '|']).filter(|url| url.contains("://")).for_each(|url| found.add(url));
            }
            "gosumdb" if value != "off" => {
                let mut words = value.split_whitespace();
                let name = words.next().unwrap_or_default();
                let host = name.split('+').next().unwrap_or(name);
                match words.next() {
                    Some(url) => found.add(url),
                    None if !host.is_empty() => found.add(&format!("https://{host}")),
                    None => {}
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(found: &Configured) -> Vec<&str> {
        found.urls.iter().map(String::as_str).collect()
    }

    #[test]
    fn hosts_of_urls() {
        for (url, expected) in [
            ("https://r.example/npm/", Some(("r.example", 443))),
            ("http://r.example", Some(("r.example", 80))),
            ("https://user:pass@R.example:8443/x?y#z", Some(("r.example", 8443))),
            ("sparse+https://r.example/index/", Some(("r.example", 443))),
            ("registry+http://r.example:81", Some(("r.example", 81))),
            ("http://[::1]:4873/", Some(("::1", 4873))),
            ("https://127.0.0.1:4873", Some(("127.0.0.1", 4873))),
            ("ssh://git@r.example/x", None),
            ("file:///srv/mirror", None),
            ("/srv/mirror", None),
            ("https://", None),
            ("https://r.example:0/", None),
            ("https://r.example:x/", None),
        ] {
            let expected = expected.map(|(host, port)| (host.to_owned(), port));
            assert_eq!(host_of(url), expected, "{url}");
        }
    }

    #[test]
    fn settings_of_each_tool() {
        let npm = npm_settings(
            "# x\nregistry = \"https://n.example/\"\n@me:registry=https://me.example\n//n.example/:_authToken=secret\n; c\nproxy=http://p.example",
        );
        assert_eq!((urls(&npm), npm.names_default), (vec!["https://n.example/", "https://me.example"], true));
        assert!(!npm_settings("@me:registry=https://me.example").names_default);

        let pip = pip_settings(
            "[global]\nindex_url = https://p.example/simple\nextra-index-url =\n    https://q.example/simple\n    https://r.example/?a=b\ntimeout = 5\n",
        );
        let expected = vec!["https://p.example/simple", "https://q.example/simple", "https://r.example/?a=b"];
        assert_eq!((urls(&pip), pip.names_default), (expected, true));
        let source = "PyPI = PackageIndex(\n    \"https://p.example/\", file_storage_domain=\"f.example\"\n)\nTest = PackageIndex(\n \"https://t.example/\")";
        assert_eq!(urls(&pip_default(source)), ["https://p.example/", "https://f.example/"]);
        assert_eq!(pip_default("nothing"), Configured::default());

        let cargo = cargo_settings(
            "[source.default]\nreplace-with = \"m\"\n[source.m]\nregistry = \"sparse+https://m.example/index/\"\n[registries.own]\nindex = \"https://o.example/git\"\ntoken = \"x\"",
        );
        assert_eq!(
            (urls(&cargo), cargo.names_default),
            (vec!["sparse+https://m.example/index/", "https://o.example/git"], true)
        );
        assert_eq!(cargo_settings("not toml ="), Configured::default());
        assert_eq!(cargo_index("i.example.io-1949cf8c6b5b557f"), Some("i.example.io"));
        for other in ["i.example.io", "github-x", "a-1949cf8c6b5b557f", "x.y-zzzzzzzzzzzzzzzz"] {
            assert_eq!(cargo_index(other), None, "{other}");
        }
        assert_eq!(
            cargo_dl("{ \"dl\": \"https://s.example/crates\", \"api\": \"x\" }").as_deref(),
            Some("https://s.example/crates")
        );
        assert_eq!(cargo_dl("{}"), None);

        let go = go_settings("GOPROXY='https://g.example,https://h.example|direct'\nGOSUMDB=sum.example\n");
        assert_eq!(urls(&go), ["https://g.example", "https://h.example", "https://sum.example"]);
        assert_eq!(
            urls(&go_settings("GOSUMDB=\"sum.example+key https://via.example\"")),
            ["https://via.example"]
        );
        assert_eq!(go_settings("GOPROXY=off\nGOSUMDB=off"), Configured { urls: vec![], names_default: true });
    }
}
