//! Arguments for llama-server that a user adds to a profile: which are refused, who could reach the server, and which
//! win over what was measured. Read from llama.cpp b11149's `common/arg.cpp`.

use super::text::clean;

mod address;

use address::is_loopback;
pub use address::{LOOPBACK, check_address, reached_by};

/// How an argument meets the same one of the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meets {
    /// llama-server takes the last.
    Replaces,
    /// Both apply; the first rule that matches a tensor wins.
    Adds,
}

/// One option in all its spellings.
struct Known {
    names: &'static [&'static str],
    has_value: bool,
    meets: Meets,
    /// It moves tensors or the context: said also where the profile leaves it to llama.cpp.
    places: bool,
}

const fn option(names: &'static [&'static str]) -> Known {
    Known {
        names,
        has_value: true,
        meets: Meets::Replaces,
        places: false,
    }
}

impl Known {
    const fn switch(self) -> Self {
        Self {
            has_value: false,
            ..self
        }
    }

    const fn adding(self) -> Self {
        Self {
            meets: Meets::Adds,
            ..self
        }
    }

    const fn placing(self) -> Self {
        Self {
            places: true,
            ..self
        }
    }
}

/// What a profile may set, or what moves what it measured.
const OPTIONS: &[Known] = &[
    option(&["-ngl", "--gpu-layers", "--n-gpu-layers"]).placing(),
    option(&["-ncmoe", "--n-cpu-moe"]).adding().placing(),
    option(&["-cmoe", "--cpu-moe"]).switch().adding().placing(),
    option(&["-ncffn", "--n-cpu-ffn"]).adding().placing(),
    option(&["-ot", "--override-tensor"]).adding().placing(),
    option(&["-ts", "--tensor-split"]).placing(),
    option(&["-sm", "--split-mode"]).placing(),
    option(&["-mg", "--main-gpu"]).placing(),
    option(&["-dev", "--device"]).placing(),
    option(&["--rpc"]).placing(),
    option(&["-kvo", "--kv-offload", "-nkvo", "--no-kv-offload"])
        .switch()
        .placing(),
    option(&["-fit", "--fit"]),
    option(&["-fitt", "--fit-target"]),
    option(&["-fitc", "--fit-ctx"]),
    option(&["-c", "--ctx-size"]),
    option(&["-np", "--parallel"]),
    option(&["-b", "--batch-size"]),
    option(&["-ub", "--ubatch-size"]),
    option(&["-ctk", "--cache-type-k"]).placing(),
    option(&["-ctv", "--cache-type-v"]).placing(),
    option(&["-fa", "--flash-attn"]),
    option(&["-t", "--threads"]),
    option(&["--cpu-strict"]),
    option(&["--poll"]),
    option(&["-lm", "--load-mode"]),
    option(&["--no-host"]).switch(),
    option(&["--op-offload", "--no-op-offload"]).switch(),
    option(&["--repack", "-nr", "--no-repack"]).switch(),
];

/// Other sources of a model.
const MODEL: &[&str] = &[
    "-m",
    "--model",
    "-mu",
    "--model-url",
    "-hf",
    "-hfr",
    "--hf-repo",
    "-dr",
    "--docker-repo",
];

/// Secrets as arguments, and the variable each may come by instead.
const SECRETS: [(&[&str], &str); 2] = [
    (&["--api-key"], "LLAMA_API_KEY"),
    (&["-hft", "--hf-token"], "HF_TOKEN"),
];

/// Why added arguments are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// A secret that every user of the machine could read.
    #[error(
        "{flag} is not passed on: every user of this machine can read a running program's arguments"
    )]
    Secret {
        /// As it was given.
        flag: String,
        /// The variable it may come by.
        variable: &'static str,
    },
    /// The server would be open to others.
    #[error("--host {host} after -- would let other machines in, which has to be asked for")]
    Open {
        /// The address.
        host: String,
    },
    /// Nothing can listen there.
    #[error("this is no address to listen on: {}", clean(.0))]
    Address(String),
    /// No number of a port.
    #[error("a port is a number from 0 to 65535, and --port after -- has {}", clean(.0))]
    Port(String),
}

impl ArgumentError {
    /// What to do instead.
    pub fn hint(&self) -> String {
        match self {
            Self::Secret { variable, .. } if *variable == "LLAMA_API_KEY" => {
                "set LLAMA_API_KEY in the environment, or name a file that holds the key: --api-key-file FILE before the --"
                    .to_owned()
            }
            Self::Secret { variable, .. } => format!("set {variable} in the environment"),
            Self::Address(_) => {
                "name an address of this machine (192.168.1.5, ::1), its name, or a socket's file that ends in .sock; several with commas between"
                    .to_owned()
            }
            Self::Port(_) => "choose one above 1023 that no program uses".to_owned(),
            Self::Open { host } => format!("put it before the --: flux run --host {host} …"),
        }
    }
}

/// Where they name a file with keys, llama-server takes the last.
pub fn key_file(extra: &[String]) -> Option<&str> {
    let at = extra.iter().rposition(|w| spelled(w) == "--api-key-file")?;
    extra.get(at + 1).map(String::as_str)
}

/// What added arguments say of the address: `None` where they say nothing.
///
/// # Errors
/// A secret among them; an address that other machines reach, or that is none; a port that is none.
pub fn checked_host(extra: &[String]) -> Result<Option<&str>, ArgumentError> {
    let mut host = None;
    for (at, word) in extra.iter().enumerate() {
        let flag = spelled(word);
        let name = flag.split('=').next().unwrap_or_default();
        for (names, variable) in SECRETS {
            if names.contains(&name) {
                return Err(ArgumentError::Secret {
                    flag: name.to_owned(),
                    variable,
                });
            }
        }
        let value = extra.get(at + 1).map(String::as_str);
        if flag == "--host" {
            host = value;
        }
        if flag == "--port" {
            let port = value.unwrap_or_default();
            port.parse::<u16>()
                .map_err(|_| ArgumentError::Port(port.to_owned()))?;
        }
    }
    if let Some(host) = host {
        check_address(host)?;
    }
    match host {
        Some(address) if !is_loopback(address) => Err(ArgumentError::Open {
            host: address.to_owned(),
        }),
        host => Ok(host),
    }
}

/// As llama.cpp reads a flag: `--api_key` is `--api-key`.
fn spelled(word: &str) -> String {
    if word.starts_with("--") {
        word.replace('_', "-")
    } else {
        word.to_owned()
    }
}

/// Added arguments that win over the profile's, or change what it was measured with: one sentence each.
pub fn contradictions(profile: &[String], extra: &[String]) -> Vec<String> {
    let own = occurrences(profile);
    let mut told = Vec::new();
    for given in occurrences(extra) {
        let said = match given.kind {
            Kind::Model => format!(
                "{} after -- wins over the profile's model: it was measured on another file",
                given.text
            ),
            Kind::Option(at) => {
                let option = &OPTIONS[at];
                let same = own.iter().rev().find(|o| o.kind == given.kind);
                match same {
                    Some(own) if own.is_the_same_as(&given) => continue,
                    Some(own) if option.meets == Meets::Adds => format!(
                        "{} after -- comes on top of the profile's {}, which wins where both name a tensor: \
                         that was not measured",
                        given.text, own.text
                    ),
                    Some(own) => format!(
                        "{} after -- wins over the profile's {}: that was not measured",
                        given.text, own.text
                    ),
                    None if option.places => format!(
                        "{} after -- moves what the profile left to llama.cpp: that was not measured",
                        given.text
                    ),
                    None => continue,
                }
            }
        };
        told.push(said);
    }
    told
}

/// Arguments as options with their values, each once: of one given twice the last, as llama-server takes it.
pub(super) fn pairs<W>(args: &[W], text: impl Fn(&W) -> &str) -> Vec<(&str, Option<&W>)> {
    let mut pairs: Vec<(&str, Option<&W>)> = Vec::new();
    let mut at = 0;
    while at < args.len() {
        let flag = text(&args[at]);
        at += 1;
        let known = OPTIONS.iter().find(|o| o.names.contains(&flag));
        let is_value = |w: &&W| !text(w).starts_with('-');
        let value = match known {
            Some(known) => args.get(at).filter(|_| known.has_value),
            None => args.get(at).filter(is_value),
        };
        at += usize::from(value.is_some());
        let same =
            |other: &str| other == flag || known.is_some_and(|known| known.names.contains(&other));
        pairs.retain(|(other, _)| !same(other));
        pairs.push((flag, value));
    }
    pairs
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Model,
    Option(usize),
}

/// A known option in a list, as it stands there.
struct Occurrence {
    kind: Kind,
    flag: String,
    value: Option<String>,
    text: String,
}

impl Occurrence {
    fn is_the_same_as(&self, other: &Self) -> bool {
        let negated = |o: &Self| o.flag.starts_with("--no-") || o.flag.starts_with("-n");
        match (&self.value, &other.value) {
            (None, None) => negated(self) == negated(other),
            (one, two) => one == two,
        }
    }
}

fn occurrences(args: &[String]) -> Vec<Occurrence> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < args.len() {
        let flag = spelled(&args[at]);
        at += 1;
        let known = OPTIONS
            .iter()
            .position(|o| o.names.contains(&flag.as_str()));
        let (kind, has_value) = match known {
            Some(known) => (Kind::Option(known), OPTIONS[known].has_value),
            None if MODEL.contains(&flag.as_str()) => (Kind::Model, true),
            None => continue,
        };
        let value = has_value.then(|| args.get(at).cloned()).flatten();
        at += usize::from(value.is_some());
        found.push(Occurrence {
            kind,
            text: match &value {
                Some(value) => format!("{flag} {value}"),
                None => flag.clone(),
            },
            flag,
            value,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_secret_is_refused_in_every_spelling() {
        for text in [
            "--api-key k",
            "--api_key k",
            "--api-key=k",
            "-t 4 --api-key k",
            "-hft t",
        ] {
            let error = checked_host(&words(text)).unwrap_err();
            assert!(matches!(error, ArgumentError::Secret { .. }), "{text}");
            assert!(!error.to_string().contains(" k"), "the key is not repeated");
        }
        assert_eq!(checked_host(&words("--api-key-file f")), Ok(None));
        let error = checked_host(&words("--api-key k")).unwrap_err();
        assert!(error.hint().contains("LLAMA_API_KEY") && error.hint().contains("--api-key-file"));
    }

    #[test]
    fn only_this_machine_is_let_in_unasked() {
        for text in [
            "--host 127.0.0.1",
            "--host localhost",
            "--host ::1",
            "--host /run/l.sock,127.0.0.2",
        ] {
            assert!(checked_host(&words(text)).unwrap().is_some(), "{text}");
        }
        for host in [
            "0.0.0.0",
            "::",
            "192.168.1.5",
            "127.0.0.1,0.0.0.0",
            "box",
            "::ffff:8.8.8.8",
        ] {
            let error = checked_host(&words(&format!("--host {host}"))).unwrap_err();
            assert!(error.to_string().contains("has to be asked for"));
            assert!(error.hint().contains(&format!("--host {host}")), "{host}");
        }
    }

    #[test]
    fn what_nothing_can_listen_on_is_refused() {
        for host in [
            "a b",
            ",",
            "127.0.0.1;x",
            "http://box",
            "[::1]",
            "a\u{1b}[2J",
        ] {
            let error = checked_host(&["--host".to_owned(), host.to_owned()]).unwrap_err();
            assert_eq!(error, ArgumentError::Address(host.to_owned()));
            assert!(!error.to_string().contains('\u{1b}'));
        }
        for host in [
            "fe80::1%eth0",
            "box-1.lan",
            "größe.local",
            "/run/a b.sock,::1",
        ] {
            assert_eq!(check_address(host), Ok(()), "{host}");
        }
        for port in ["99999", "-1", "http", ""] {
            let error = checked_host(&["--port".to_owned(), port.to_owned()]).unwrap_err();
            assert_eq!(error, ArgumentError::Port(port.to_owned()));
        }
        assert_eq!(checked_host(&words("--port 8081")), Ok(None));
        assert!(checked_host(&words("--port")).is_err(), "nothing after it");
    }

    #[test]
    fn a_file_of_keys_is_found_in_either_spelling() {
        assert_eq!(
            key_file(&words("--api_key_file a --api-key-file b")),
            Some("b")
        );
        assert_eq!(key_file(&words("--api-key-file")), None);
    }

    #[test]
    fn what_wins_over_the_profile_is_named() {
        let profile = words("-ngl 37 -ot a=CPU -c 16384 --flash-attn on --no-op-offload");
        let of = |extra: &str| contradictions(&profile, &words(extra));
        assert_eq!(
            of("--gpu-layers 10 --port 9000"),
            ["--gpu-layers 10 after -- wins over the profile's -ngl 37: that was not measured"]
        );
        assert_eq!(
            of("--override_tensor b=CPU"),
            [
                "--override-tensor b=CPU after -- comes on top of the profile's -ot a=CPU, which wins where both name a tensor: that was not measured"
            ]
        );
        assert_eq!(
            of("-m b.gguf"),
            ["-m b.gguf after -- wins over the profile's model: it was measured on another file"]
        );
        assert_eq!(
            of("-ctk q8_0").len(),
            1,
            "a cache type the profile left alone"
        );
        assert_eq!(of("--op-offload").len(), 1, "the other way round");
        for same in [
            "-ngl 37",
            "-fa on",
            "--no-op-offload",
            "-ub 256 --alias x",
            "",
        ] {
            assert_eq!(of(same), [""; 0], "{same}");
        }
        assert_eq!(contradictions(&[], &words("-ngl -1")).len(), 1);
    }
}
