//! A made-up vocabulary for synthesised models. llama-bench runs without one (`tokenizer.ggml.model = none` and
//! `*.vocab_size`), but llama-server aborts at its first request, so every text must have tokens: one per byte.

use super::shapes::Field;

/// llama.cpp's token attributes (`llama_token_type`).
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const BYTE: i32 = 6;

const BEGIN_ID: u32 = 1;
const END_ID: u32 = 2;
const SPECIAL: [(&str, i32); 3] = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)];

/// Metadata of a `SentencePiece` vocabulary of `size` tokens: three special ones, 256 bytes, fillers no text has.
pub(super) fn metadata(size: u32) -> Vec<(String, Field)> {
    let special = SPECIAL.iter().map(|&(text, kind)| (text.to_owned(), kind));
    let bytes = (0..=u8::MAX).map(|byte| (format!("<0x{byte:02X}>"), BYTE));
    let fillers = (0..).map(|n: u32| (format!("\u{2581}filler{n}"), NORMAL));
    let tokens = special.chain(bytes).chain(fillers).take(size as usize);
    let (texts, kinds): (Vec<_>, Vec<_>) = tokens.unzip();
    [
        ("model", Field::Text("llama".to_owned())),
        ("pre", Field::Text("default".to_owned())),
        ("tokens", Field::Texts(texts)),
        ("scores", Field::F32s(vec![0.0; kinds.len()])),
        ("token_type", Field::I32s(kinds)),
        ("bos_token_id", Field::U32(BEGIN_ID)),
        ("eos_token_id", Field::U32(END_ID)),
    ]
    .map(|(name, field)| (format!("tokenizer.ggml.{name}"), field))
    .into()
}
