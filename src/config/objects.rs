//! What is configured of object stores, and whose rights are used where.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use exobus_files::Location;
use exobus_objects::{Addresses, AddressesError, S3Keys, Settings};
use thiserror::Error;

use super::{NodeConfig, ObjectsSection};

/// What is said of object stores makes no sense.
#[derive(Debug, Error)]
pub enum ObjectsError {
    /// A network is none.
    #[error("objects.networks: {0}")]
    Networks(#[from] AddressesError),
    /// An endpoint that is no URL of a server.
    #[error(
        "objects.s3_endpoint = {0:?}: a URL such as \"http://127.0.0.1:9000\" is expected, without user, password and bucket"
    )]
    Endpoint(String),
    /// Whose rights a tenant's jobs have below a URL would depend on how the URL is called.
    #[error(
        "tenants.{one} and tenants.{other} have roots of which one is in the other, {url:?}, and s3_profile is not the same for both: \
         jobs of the one would have the rights of the other there"
    )]
    Overlap {
        /// A tenant.
        one: String,
        /// Another.
        other: String,
        /// A root of the second one.
        url: String,
    },
    /// A root that is written otherwise than what is below it would be.
    #[error(
        "the root {0:?}: a URL such as s3://bucket or s3://bucket/team is expected, with names between its slashes"
    )]
    Root(String),
    /// A tenant has rights and no place where they are used.
    #[error("tenants.{0}.s3_profile is set, and no root of the tenant is a URL: s3://bucket, or s3://bucket/team")]
    Nowhere(String),
}

/// See [`NodeConfig::objects`].
pub(super) fn settings(config: &NodeConfig, is_alone: bool) -> Result<Settings, ObjectsError> {
    let ObjectsSection { s3_endpoint, s3_region, s3_path_style, s3_profile, networks, requests } = &config.objects;
    let named = Addresses::public_and(networks)?;
    if let Some(endpoint) = s3_endpoint.as_ref().filter(|endpoint| !Settings::is_endpoint(endpoint)) {
        return Err(ObjectsError::Endpoint(endpoint.clone()));
    }
    Ok(Settings {
        s3_endpoint: s3_endpoint.clone(),
        s3_region: s3_region.clone(),
        s3_path_style: *s3_path_style,
        s3_keys: s3_profile.clone().map_or(S3Keys::Found, S3Keys::Profile),
        s3_profiles: profiles(config)?,
        addresses: if is_alone { Addresses::any() } else { named },
        requests: *requests as usize,
    })
}

/// The profiles of tenants, by their URLs.
fn profiles(config: &NodeConfig) -> Result<BTreeMap<String, String>, ObjectsError> {
    let default = &config.objects.s3_profile;
    let mut seen: Vec<(&str, &Path, Option<&String>)> = Vec::new();
    for (name, tenant) in &config.tenants {
        let roots = if tenant.roots.is_empty() { &config.security.roots } else { &tenant.roots };
        let is_s3 = |root: &&PathBuf| Location::from(*root).scheme().is_some_and(|it| it.eq_ignore_ascii_case("s3"));
        let mut urls = roots.iter().filter(is_s3).peekable();
        if tenant.s3_profile.is_some() && urls.peek().is_none() {
            return Err(ObjectsError::Nowhere(name.clone()));
        }
        let profile = tenant.s3_profile.as_ref().or(default.as_ref());
        for url in urls {
            let is_plain = url
                .to_str()
                .and_then(|url| url.strip_prefix("s3://"))
                .is_some_and(|place| !place.is_empty() && !place.starts_with('/') && !place.contains("//"));
            if !is_plain {
                return Err(ObjectsError::Root(url.display().to_string()));
            }
            let overlaps = |(_, other, of): &&(&str, &Path, Option<&String>)| {
                (url.starts_with(other) || other.starts_with(url)) && *of != profile
            };
            if let Some((one, ..)) = seen.iter().find(overlaps) {
                let (one, other) = ((*one).to_owned(), name.clone());
                return Err(ObjectsError::Overlap { one, other, url: url.display().to_string() });
            }
            seen.push((name, url, profile));
        }
    }
    let of_tenants =
        seen.into_iter().filter_map(|(_, url, profile)| Some((url.to_str()?.to_owned(), profile?.clone())));
    Ok(of_tenants.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn read(toml: &str) -> Result<Settings, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.toml");
        std::fs::write(&file, toml).unwrap();
        let config = NodeConfig::load_with(Some(&file), &Overrides::default(), std::iter::empty());
        config.and_then(|config| config.objects(false)).map_err(|error| error.to_string())
    }

    #[test]
    fn each_tenant_has_its_profile_below_its_urls() {
        let settings = read(
            "[objects]\ns3_profile = \"all\"\nnetworks = [\"10.0.0.0/8\"]\n\
             [tenants.a]\nroots = [\"s3://bucket/a\", \"/data\"]\ns3_profile = \"of-a\"\n[tenants.b]\nroots = [\"s3://bucket/b\"]\n",
        );
        let settings = settings.unwrap();
        let profiles: Vec<_> = settings.s3_profiles.iter().map(|(url, of)| (url.as_str(), of.as_str())).collect();
        assert_eq!(profiles, [("s3://bucket/a", "of-a"), ("s3://bucket/b", "all")]);
        assert_eq!(settings.s3_keys, S3Keys::Profile("all".to_owned()));
        assert_ne!(settings.addresses, Addresses::any());
    }

    #[test]
    fn a_tenant_has_nobody_elses_rights() {
        let of = |a: &str, b: &str| {
            read(&format!("[tenants.a]\nroots = [{a:?}]\ns3_profile = \"x\"\n[tenants.b]\nroots = [{b:?}]\n"))
        };
        for (a, b) in [("s3://bucket", "s3://bucket/b"), ("s3://bucket/b/c", "s3://bucket/b"), ("s3://one", "s3://one")]
        {
            let error = of(a, b).unwrap_err();
            assert!(error.contains("tenants.a and tenants.b"), "{error}");
        }
        assert!(of("s3://bucket/a", "s3://bucket/ab").is_ok());
        for odd in ["S3://bucket/a", "s3://bucket//a", "s3:///bucket"] {
            assert!(of("s3://other", odd).unwrap_err().contains("names between its slashes"), "{odd}");
        }
        assert!(of("/data", "s3://bucket").unwrap_err().contains("no root of the tenant is a URL"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (toml, words) in [
            ("networks = [\"10.0.0.0/99\"]", "10.0.0.0/99"),
            ("s3_endpoint = \"127.0.0.1:9000\"", "a URL such as"),
            ("s3_endpoint = \"http://me:secret@host\"", "a URL such as"),
        ] {
            let error = read(&format!("[objects]\n{toml}\n")).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        assert!(read("[objects]\ns3_endpoint = \"https://minio.lab:9000/\"\n").is_ok());
    }
}
