//! Prompts that no cache knows: text of a seed's own, cut to an exact number of the model's tokens.

use crate::domain::types::TextKind;

/// Words of the text: common ones, which most tokenizers know as one token each.
const WORDS: &[&str] = &[
    "river",
    "stone",
    "garden",
    "winter",
    "letter",
    "market",
    "engine",
    "window",
    "teacher",
    "island",
    "forest",
    "bridge",
    "silver",
    "morning",
    "harbor",
    "mountain",
    "kitchen",
    "doctor",
    "village",
    "ocean",
    "paper",
    "music",
    "train",
    "road",
    "city",
    "farmer",
    "castle",
    "summer",
    "shadow",
    "horse",
    "table",
    "story",
    "bread",
    "light",
    "child",
    "friend",
    "machine",
    "planet",
    "wood",
    "glass",
    "tower",
    "field",
    "street",
    "night",
    "water",
    "fire",
    "wind",
    "song",
    "travels",
    "builds",
    "finds",
    "keeps",
    "opens",
    "carries",
    "follows",
    "remembers",
    "paints",
    "sells",
    "breaks",
    "watches",
    "old",
    "new",
    "quiet",
    "bright",
    "small",
    "long",
    "cold",
    "green",
    "heavy",
    "early",
    "the",
    "a",
    "of",
    "near",
    "under",
    "with",
    "before",
    "behind",
    "and",
    "to",
];
/// What a prompt is filled up with to the last token.
const FILLERS: &[&str] = &[" a", " the", ".", " 1"];
/// The nouns, verbs and adjectives among the words, in this order.
const NOUNS: usize = 48;
const VERBS: usize = 60;
const ADJECTIVES: usize = 70;
/// What a user asks for.
const ASK: &str = "Go on with this story:";
/// What a user asks for who shows a program: an answer that says much of it again.
const ASK_CODE: &str = "Write this file again with a comment at every function:";

/// Steele, Lea and Flood's generator (`SplitMix64`, OOPSLA 2014): the same text for the same seed, everywhere.
#[derive(Debug, Clone)]
pub struct Seeded(u64);

impl Seeded {
    /// A generator of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A seed made of others: of a session, a run, a request.
pub fn seed_of(parts: &[u64]) -> u64 {
    parts
        .iter()
        .fold(0x666c_7578, |seed, part| Seeded::new(seed ^ *part).next())
}

/// So many words of a seed's text, after what a user asks for. Its own number comes first, so that no two texts share more
/// than the words of the template before them.
fn text(seed: u64, words: u32) -> String {
    let mut random = Seeded::new(seed);
    let mut text = format!("{:06x}. {ASK}", random.next() >> 40);
    for at in 0..words {
        text.push(' ');
        let word = WORDS[(random.next() % WORDS.len() as u64) as usize];
        text.push_str(word);
        if at % 12 == 11 {
            text.push('.');
        }
    }
    text
}

/// So many pieces of a text of this kind. A piece is a word with what follows it.
fn made(kind: TextKind, seed: u64, pieces: u32) -> String {
    let one = match kind {
        TextKind::Words => return text(seed, pieces),
        TextKind::Prose => sentence,
        TextKind::Code => function,
    };
    let mut random = Seeded::new(seed);
    let ask = if kind == TextKind::Code {
        ASK_CODE
    } else {
        ASK
    };
    let mut text = format!("{:06x}. {ask}", random.next() >> 40);
    let mut left = pieces as usize;
    while left > 0 {
        let whole = one(&mut random);
        // Indentation goes with the word after it: every piece is a token at least.
        let mut after_word = false;
        let pieces = whole.split_inclusive(|c: char| {
            let cut = c == ' ' && after_word;
            after_word = !c.is_whitespace();
            cut
        });
        left -= pieces
            .take(left)
            .inspect(|piece| text.push_str(piece))
            .count();
    }
    text.truncate(text.trim_end().len());
    text
}

fn pick(random: &mut Seeded, from: &[&'static str]) -> &'static str {
    from[(random.next() % from.len() as u64) as usize]
}

fn sentence(random: &mut Seeded) -> String {
    let [a, b, c] = [(); 3].map(|()| pick(random, &WORDS[..NOUNS]));
    let verb = pick(random, &WORDS[NOUNS..VERBS]);
    let adjective = pick(random, &WORDS[VERBS..ADJECTIVES]);
    format!(" The {adjective} {a} {verb} the {b} near the {c}.")
}

fn function(random: &mut Seeded) -> String {
    let [a, b, c] = [(); 3].map(|()| pick(random, &WORDS[..NOUNS]));
    let verb = pick(random, &WORDS[NOUNS..VERBS]);
    let (limit, factor) = (random.next() % 100, random.next() % 10);
    format!(
        "\n\ndef {verb}_{a}({b}s, limit={limit}):\n    total = 0\n    for {b} in {b}s:\n        if {b}.{c} > limit:\n            \
         total += {b}.{c} * {factor}\n    return total"
    )
}

/// A text of this kind and seed that `count` finds exactly `target` tokens in, its template included; `None` where the
/// template alone is longer, or no filler fits this tokenizer.
///
/// # Errors
/// As `count`.
pub fn exact_text<E>(
    kind: TextKind,
    seed: u64,
    target: u32,
    count: &mut dyn FnMut(&str) -> Result<u32, E>,
) -> Result<Option<String>, E> {
    if count(&made(kind, seed, 0))? > target {
        return Ok(None);
    }
    // Every word is a token at least.
    let (mut fits, mut too_many) = (0, target + 1);
    while too_many - fits > 1 {
        let words = fits + (too_many - fits) / 2;
        if count(&made(kind, seed, words))? <= target {
            fits = words;
        } else {
            too_many = words;
        }
    }
    let most = made(kind, seed, fits);
    let missing = (target - count(&most)?) as usize;
    for filler in FILLERS {
        for times in missing.saturating_sub(1)..=missing + 1 {
            let filled = format!("{most}{}", filler.repeat(times));
            if count(&filled)? == target {
                return Ok(Some(filled));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // First outputs for seed 1234567 (Rosetta Code, SplitMix64).
        let mut random = Seeded::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn texts_have_exactly_the_tokens_asked_for_and_nothing_in_common() {
        // A tokenizer of pieces of four letters: words are one to three tokens.
        let pieces = |text: &str| -> u32 {
            text.split_whitespace()
                .map(|w| w.len().div_ceil(4) as u32)
                .sum()
        };
        let mut count = |text: &str| Ok::<u32, ()>(7 + pieces(text));
        for target in [40, 41, 42, 99, 1496] {
            let made = exact_text(TextKind::Words, 3, target, &mut count)
                .unwrap()
                .unwrap();
            assert_eq!(count(&made), Ok(target));
        }
        assert_eq!(
            exact_text(TextKind::Words, 3, 10, &mut count),
            Ok(None),
            "the template alone is longer"
        );
        let starts: std::collections::BTreeSet<String> = (0..1000)
            .map(|seed| text(seed_of(&[1, seed]), 4)[..6].to_owned())
            .collect();
        assert!(starts.len() > 995, "{}", starts.len());
    }

    #[test]
    fn prose_and_code_are_made_of_pieces_and_differ_by_seed() {
        let code = made(TextKind::Code, 3, 40);
        assert!(
            code.contains(ASK_CODE)
                && code.contains("\n\ndef ")
                && code.contains("    total = 0\n"),
            "{code}"
        );
        assert_eq!(made(TextKind::Code, 3, 40), code);
        assert_ne!(made(TextKind::Code, 4, 40)[..6], code[..6]);
        let prose = made(TextKind::Prose, 3, 30);
        assert!(prose.contains(ASK) && prose.contains(". The "), "{prose}");
        for kind in [TextKind::Prose, TextKind::Code] {
            let longer = |n: u32| made(kind, 7, n + 1).len() > made(kind, 7, n).len();
            assert!((20..90).filter(|n| longer(*n)).count() > 55, "{kind:?}");
            let mut count = |text: &str| Ok::<u32, ()>(text.split_whitespace().count() as u32);
            let exact = exact_text(kind, 5, 400, &mut count).unwrap().unwrap();
            assert_eq!(count(&exact), Ok(400));
        }
        assert_eq!(
            (WORDS[NOUNS], WORDS[VERBS], WORDS[ADJECTIVES]),
            ("travels", "old", "the")
        );
    }

    #[test]
    fn a_count_that_fails_ends_it() {
        assert_eq!(
            exact_text(TextKind::Words, 1, 50, &mut |_| Err("gone")),
            Err("gone")
        );
    }
}
