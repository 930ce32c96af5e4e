//! The simulated llama-server (b11149): loads, answers completions token by token at the script's rates, remembers its last
//! prompt, and fails as its script says. A word is a token; the chat template is `<|user|> … <|assistant|>`.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::fake_acts;
use crate::fake_config::{self, Act, Config, Noise, ServerAct, Situation};

/// Words of the simulated vocabulary.
const VOCABULARY: u64 = 32_000;
/// The place of an answer at which another token is nearly as likely.
const TIE: u64 = 5;
/// How long a server that is slow to load answers 503.
const LOADING: Duration = Duration::from_millis(150);

struct Server {
    config: Config,
    situation: Situation,
    acts: Vec<ServerAct>,
    model: Value,
    /// Arguments that speculation is asked for with.
    drafts: bool,
    slots: u32,
    loaded_at: Instant,
    busy: AtomicU32,
    answered: AtomicU32,
    has_switched: AtomicBool,
    last_prompt: Mutex<Vec<u32>>,
    heard: Mutex<HashSet<u64>>,
    noise: Mutex<Noise>,
}

/// Serves for ever, unless its script ends it.
pub fn serve(dir: &Path, config: Config, fields: Map<String, Value>, args: &[String]) -> ExitCode {
    let value = |flags: &[&str]| {
        let at = args.iter().rposition(|a| flags.contains(&a.as_str()));
        at.and_then(|at| args.get(at + 1)).cloned()
    };
    let process = fake_config::count_process(dir);
    let situation = Situation::new(fields, process);
    let mut acts = Vec::new();
    for act in config.acts(&situation) {
        if let Act::Server(act) = act {
            acts.push(act);
        } else if let Some(code) = fake_acts::before_results(&act) {
            return code;
        }
    }
    let port = value(&["--port"]).and_then(|port| port.parse().ok());
    let address = (Ipv4Addr::LOCALHOST, port.unwrap_or(8080));
    let Ok(listener) = TcpListener::bind(address) else {
        eprintln!("start: couldn't bind HTTP server socket, hostname: 127.0.0.1");
        return ExitCode::from(1);
    };
    let noise = Mutex::new(config.noise(process));
    let slow = acts.contains(&ServerAct::LoadsSlowly);
    let server = Arc::new(Server {
        model: value(&["-m", "--model"]).into(),
        drafts: value(&["--spec-type"]).is_some_and(|kind| kind != "none"),
        slots: value(&["-np", "--parallel"])
            .and_then(|n| n.parse().ok())
            .unwrap_or(4),
        loaded_at: Instant::now() + if slow { LOADING } else { Duration::ZERO },
        config,
        situation,
        acts,
        busy: AtomicU32::new(0),
        answered: AtomicU32::new(0),
        has_switched: AtomicBool::new(false),
        last_prompt: Mutex::default(),
        heard: Mutex::default(),
        noise,
    });
    for connection in listener.incoming().flatten() {
        let server = Arc::clone(&server);
        // A client may hang up at any time.
        let named = std::thread::Builder::new().name("answer".to_owned());
        named.spawn(move || server.answer(connection)).unwrap();
    }
    ExitCode::SUCCESS
}

impl Server {
    fn template(&self, messages: &Value) -> String {
        let said = messages.as_array().into_iter().flatten();
        let before = "so ".repeat(self.config.template_words);
        let turn = |m: &Value| {
            let text = |name: &str| m[name].as_str().unwrap_or_default().to_owned();
            format!("<|{}|> {before}{} ", text("role"), text("content"))
        };
        said.map(turn).collect::<String>() + "<|assistant|>"
    }

    fn does(&self, act: &ServerAct) -> bool {
        self.acts.contains(act)
    }

    fn answer(&self, mut connection: TcpStream) -> std::io::Result<()> {
        let mut request = BufReader::new(connection.try_clone()?);
        let mut first = String::new();
        request.read_line(&mut first)?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            if request.read_line(&mut line)? <= 2 {
                break;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        request.read_exact(&mut body)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let path = first.split(' ').nth(1).unwrap_or_default();
        let is_loading = Instant::now() < self.loaded_at || self.does(&ServerAct::HangsLoading);
        match path {
            _ if is_loading => {
                let busy = json!({"error": {"message": "Loading model", "code": 503}});
                respond(&mut connection, 503, &busy)
            }
            "/health" => respond(&mut connection, 200, &json!({"status": "ok"})),
            "/props" => respond(&mut connection, 200, &self.props()),
            "/v1/models" => {
                let data =
                    json!([{"id": "a", "owned_by": "llamacpp", "meta": {"n_vocab": VOCABULARY}}]);
                respond(&mut connection, 200, &json!({ "data": data }))
            }
            "/tokenize" => {
                let tokens = tokens(body["content"].as_str().unwrap_or_default());
                respond(&mut connection, 200, &json!({ "tokens": tokens }))
            }
            "/apply-template" => respond(
                &mut connection,
                200,
                &json!({"prompt": self.template(&body["messages"])}),
            ),
            "/completion" | "/v1/chat/completions" => self.complete(&mut connection, path, &body),
            _ => respond(
                &mut connection,
                404,
                &json!({"error": {"message": "File Not Found"}}),
            ),
        }
    }

    fn props(&self) -> Value {
        let other = self.acts.iter().find_map(|act| match act {
            ServerAct::Model(path) => Some(path.clone()),
            _ => None,
        });
        let switched = self.has_switched.load(Ordering::SeqCst);
        let model = match other {
            Some(path) => json!(path),
            None if switched => json!("/m/another.gguf"),
            None => self.model.clone(),
        };
        json!({"model_path": model, "total_slots": self.slots, "default_generation_settings": {"n_ctx": 4096}})
    }

    fn complete(
        &self,
        connection: &mut TcpStream,
        path: &str,
        body: &Value,
    ) -> std::io::Result<()> {
        let nth = self.answered.fetch_add(1, Ordering::SeqCst);
        // The first answer is the one that says it is ready.
        let is_counted = nth > 0;
        if self.does(&ServerAct::Stalls) && is_counted {
            loop {
                std::thread::park();
            }
        }
        if self.does(&ServerAct::Refuses) && is_counted {
            let said = "the request exceeds the available context size";
            return respond(
                connection,
                400,
                &json!({"error": {"code": 400, "message": said}}),
            );
        }
        if self.does(&ServerAct::Garbage) && is_counted {
            return plain(
                connection,
                "<html>not the server you are looking for</html>",
            );
        }
        let chat = path.starts_with("/v1");
        let prompt = match (&body["prompt"], chat) {
            (_, true) => tokens(&self.template(&body["messages"])),
            (Value::Array(ids), _) => ids
                .iter()
                .filter_map(Value::as_u64)
                .map(|n| n as u32)
                .collect(),
            (text, _) => tokens(text.as_str().unwrap_or_default()),
        };
        self.busy.fetch_add(1, Ordering::SeqCst);
        let answer = Answer::new(self, chat, body, &prompt, is_counted);
        let sent = if body["stream"] == json!(true) {
            answer.stream(self, connection)
        } else {
            answer.whole(self, connection)
        };
        self.busy.fetch_sub(1, Ordering::SeqCst);
        if self.does(&ServerAct::Switches) && is_counted {
            self.has_switched.store(true, Ordering::SeqCst);
        }
        sent
    }
}

impl Server {
    /// What is added to the log-probabilities of less likely tokens.
    fn shift(&self) -> f64 {
        match () {
            () if self.does(&ServerAct::Rounds) => 0.01,
            () if self.does(&ServerAct::Coarse) => -0.9,
            () => 0.0,
        }
    }

    /// It was asked this before; remembers it.
    fn has_heard(&self, prompt: &[u32]) -> bool {
        !self.heard.lock().unwrap().insert(hash(&prompt))
    }

    /// Tokens of a prompt that are not computed again; remembers the prompt.
    fn cached(&self, prompt: &[u32], body: &Value, is_counted: bool) -> usize {
        let mut last = self.last_prompt.lock().unwrap();
        let pairs = prompt.iter().zip(last.iter());
        let same = pairs.take_while(|(a, b)| a == b).count();
        *last = prompt.to_vec();
        if self.does(&ServerAct::Caches) && is_counted {
            prompt.len() - 1
        } else if body["cache_prompt"] == json!(false) {
            0
        } else {
            same.min(prompt.len().saturating_sub(1))
        }
    }
}

/// One answer, its times known before it is sent.
struct Answer {
    chat: bool,
    is_counted: bool,
    probs: u32,
    /// The token that has an equal.
    tie: u32,
    /// Added to every log-probability but the likeliest's.
    shift: f64,
    not_numbers: bool,
    ids: Vec<u32>,
    prompt_secs: f64,
    predicted_secs: f64,
    timings: Value,
}

impl Answer {
    fn new(server: &Server, chat: bool, body: &Value, prompt: &[u32], is_counted: bool) -> Self {
        let number = |name: &str| body[name].as_u64();
        let asked = number("n_predict").or(number("max_tokens")).unwrap_or(16) as u32;
        let n = if server.does(&ServerAct::OneToken) && is_counted {
            1
        } else {
            asked
        };
        let cached = server.cached(prompt, body, is_counted);
        let computed = (prompt.len() - cached) as u32;
        // Beyond one client the machine is shared: two together are as fast as one and a half.
        let busy = server.busy.load(Ordering::SeqCst).max(1);
        let share = 1.0 + 0.5 * f64::from(busy - 1);
        let noise = server.noise.lock().unwrap().next() * share;
        let seconds = |prompt, generated| {
            server
                .config
                .seconds(&server.situation, prompt, generated, 1)
        };
        let prompt_secs = seconds(computed, 0) * noise;
        // Guesses are good where a program is said again.
        let guesses_well = server.drafts && body["messages"].to_string().contains("def ");
        let saved = if guesses_well { 1.5 } else { 1.0 };
        let predicted_secs = seconds(0, n.saturating_sub(1)) * noise / saved;
        // Greedy answers follow from the prompt alone.
        let seed = if body["temperature"] == json!(0.0) {
            0
        } else {
            number("seed").unwrap_or(0)
        };
        let nonsense = server.does(&ServerAct::Nonsense)
            || (server.does(&ServerAct::NonsenseWhenWarm) && server.has_heard(prompt));
        let start = hash(&(prompt, seed, nonsense));
        let other = |i| u64::from(i >= TIE && server.does(&ServerAct::TakesTheOther));
        let ids = (0..u64::from(n))
            .map(|i| (start.wrapping_add(7 * i + other(i)) % VOCABULARY) as u32)
            .collect();
        let mut timings = json!({
            "cache_n": cached, "prompt_n": computed, "prompt_ms": prompt_secs * 1e3,
            "predicted_n": n, "predicted_ms": (predicted_secs * 1e3).max(0.001),
            "prompt_per_second": 1.0, "predicted_per_second": 1.0,
        });
        if server.drafts {
            let quarters = match () {
                () if cached + 1 == prompt.len() || server.does(&ServerAct::Replays) => 4,
                () if guesses_well => 3,
                () => 1,
            };
            timings["draft_n"] = n.into();
            timings["draft_n_accepted"] = (quarters * n / 4).into();
        }
        Self {
            chat,
            is_counted,
            probs: number("n_probs").or(number("top_logprobs")).unwrap_or(0) as u32,
            tie: ((start.wrapping_add(7 * TIE)) % VOCABULARY) as u32,
            shift: server.shift(),
            not_numbers: server.does(&ServerAct::NotNumbers),
            ids,
            prompt_secs,
            predicted_secs,
            timings,
        }
    }

    fn word(id: u32) -> String {
        format!(" w{id}")
    }

    /// The token drawn and those after it; at one place the next is nearly as likely.
    fn places(&self, ids: &[u32]) -> Value {
        let likeliest = if self.not_numbers {
            Value::Null
        } else {
            json!(-0.1)
        };
        let place = |id: &u32| {
            let is_tie = id.wrapping_sub(self.tie) <= 1;
            let (first, step) = if is_tie { (self.tie, 0.05) } else { (*id, 1.0) };
            let top = |rank: u32| {
                let logprob = match rank {
                    0 => likeliest.clone(),
                    _ => json!(-0.1 - step * f64::from(rank) + self.shift),
                };
                json!({"id": first + rank, "token": Self::word(first + rank), "logprob": logprob})
            };
            let tops: Vec<Value> = (0..self.probs).map(top).collect();
            json!({"id": id, "token": Self::word(*id), "logprob": likeliest, "top_logprobs": tops})
        };
        ids.iter().map(place).collect()
    }

    fn part(&self, ids: &[u32]) -> Value {
        let text: String = ids.iter().map(|id| Self::word(*id)).collect();
        if self.chat {
            let mut choice = json!({"finish_reason": null, "index": 0, "delta": {"content": text}});
            if self.probs > 0 {
                choice["logprobs"] = json!({"content": self.places(ids)});
            }
            return json!({"choices": [choice], "object": "chat.completion.chunk"});
        }
        let mut part = json!({"index": 0, "content": text, "tokens": ids, "stop": false});
        if self.probs > 0 {
            part["completion_probabilities"] = self.places(ids);
        }
        part
    }

    fn last(&self) -> Value {
        if self.chat {
            let choice = json!({"finish_reason": "length", "index": 0, "delta": {}});
            return json!({"choices": [choice], "timings": self.timings});
        }
        json!({"index": 0, "content": "", "tokens": [], "stop": true, "stop_type": "limit", "timings": self.timings})
    }

    fn whole(&self, server: &Server, connection: &mut TcpStream) -> std::io::Result<()> {
        if self.is_counted && server.does(&ServerAct::Dies) {
            let _ = fake_acts::before_results(&Act::DeviceLost);
        }
        // Nobody times an answer that is asked for with its probabilities.
        if self.probs == 0 {
            let secs = self.prompt_secs + self.predicted_secs;
            std::thread::sleep(Duration::from_secs_f64(secs));
        }
        let mut whole = self.part(&self.ids);
        whole["timings"] = self.timings.clone();
        if self.chat {
            let choice = &mut whole["choices"][0];
            choice["message"] = choice["delta"].take();
            choice["finish_reason"] = json!("length");
        } else {
            whole["stop"] = json!(true);
            whole["stop_type"] = json!("limit");
        }
        respond(connection, 200, &whole)
    }

    fn stream(&self, server: &Server, connection: &mut TcpStream) -> std::io::Result<()> {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
        connection.write_all(head.as_bytes())?;
        std::thread::sleep(Duration::from_secs_f64(self.prompt_secs));
        if self.chat {
            let delta = json!({"role": "assistant", "content": null});
            event(
                connection,
                &json!({"choices": [{"finish_reason": null, "index": 0, "delta": delta}]}),
            )?;
        }
        let pause = Duration::from_secs_f64(self.predicted_secs / self.ids.len().max(1) as f64);
        for (i, id) in self.ids.iter().enumerate() {
            if self.is_counted && i == self.ids.len() / 2 && i > 0 {
                if server.does(&ServerAct::Dies) {
                    let _ = fake_acts::before_results(&Act::DeviceLost);
                }
                if server.does(&ServerAct::HangsUp) {
                    return Ok(());
                }
                if server.does(&ServerAct::Babbles) {
                    return chunk(connection, "data: {\"choices\": [oops\n\n");
                }
            }
            event(connection, &self.part(&[*id]))?;
            std::thread::sleep(pause);
        }
        event(connection, &self.last())?;
        if self.chat {
            chunk(connection, "data: [DONE]\n\n")?;
        }
        connection.write_all(b"0\r\n\r\n")
    }
}

fn event(connection: &mut TcpStream, event: &Value) -> std::io::Result<()> {
    chunk(connection, &format!("data: {event}\n\n"))
}

fn chunk(connection: &mut TcpStream, text: &str) -> std::io::Result<()> {
    connection.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
}

fn respond(connection: &mut TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    write!(
        connection,
        "HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn plain(connection: &mut TcpStream, body: &str) -> std::io::Result<()> {
    let length = body.len();
    write!(
        connection,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn tokens(text: &str) -> Vec<u32> {
    let of = |word: &str| (hash(&word) % VOCABULARY) as u32;
    std::iter::once(1)
        .chain(text.split_whitespace().map(of))
        .collect()
}

fn hash(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
