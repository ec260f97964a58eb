//! Counts the words of all texts in a directory: map-reduce, with tasks that start tasks.
//!
//! ```text
//! wasmrun submit target/guests/word-count.wasm --dir .::/text:ro --invoke 'top("/text", 10, 5)'
//! ```
//!
//! `top` is the driver. Each directory below is a task that starts one for every directory in it (`list`). Each
//! batch of pieces of files is a task (`map`) that leaves its counts in the store, a part for each
//! reducer: what crosses to the driver and on to the reducers (`reduce`) are handles, not words.
//!
//! `text` knows pieces of files and what a word is. It knows nothing of tasks.

mod text;

/// What can be called.
#[wasmrun_guest::module(memory = "64MiB", dirs("/text"))]
mod app {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use wasmrun_guest::prelude::*;

    use crate::text;

    /// How much of the texts one task counts, about.
    const BATCH_BYTES: u64 = 256 << 10;
    /// So many reducers, each with its share of all words.
    const REDUCERS: u32 = 4;

    /// How often a word occurs.
    pub type Count = (String, u64);

    /// The lines of a file that begin at one of these bytes.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Piece {
        pub path: String,
        pub start: u64,
        pub end: u64,
    }

    /// A share of all words, counted.
    pub struct Reduced {
        /// How many there are.
        pub words: u64,
        /// How many different ones.
        pub different: u64,
        /// The most frequent, beginning with the first of them.
        pub top: Vec<Count>,
    }

    /// What is in the texts.
    #[derive(Debug, PartialEq)]
    pub struct Summary {
        pub files: u64,
        pub bytes: u64,
        pub words: u64,
        pub different: u64,
        pub top: Vec<Count>,
    }

    /// The `count` most frequent words, among those with at least so many letters, of all texts in a
    /// directory and below.
    #[task(memory = "128MiB")]
    pub fn top(dir: String, count: u32, letters: u32) -> Result<Summary, String> {
        let pieces = list(dir)?;
        let bytes = pieces.iter().map(|piece| piece.end - piece.start).sum();
        let files = pieces.iter().filter(|piece| piece.start == 0).count() as u64;
        let batches = batches(pieces);
        eprintln!(
            "{files} texts, {bytes} bytes: {} tasks count",
            batches.len()
        );

        let counted = map_all(&batches, letters)?;
        let reducers = (0..REDUCERS as usize).map(|reducer| {
            let parts: Vec<Future<Vec<Count>>> =
                counted.iter().map(|parts| parts[reducer].clone()).collect();
            reduce::remote(parts, count)
        });
        // All of them are started before the first is waited for.
        let reducers: Vec<_> = reducers.collect();
        let reduced = get_all(&reducers)?;
        eprintln!("reduced {REDUCERS} of {REDUCERS}\n");

        let summary = Summary {
            files,
            bytes,
            words: reduced.iter().map(|share| share.words).sum(),
            different: reduced.iter().map(|share| share.different).sum(),
            top: most_frequent(reduced.into_iter().flat_map(|share| share.top), count),
        };
        print(&summary);
        Ok(summary)
    }

    /// The texts of a directory in pieces, with a task for each directory in it.
    ///
    /// While it waits for its children it gives its CPU back but keeps its memory, so it asks for little.
    #[task(cpus = "0.1", memory = "16MiB")]
    pub fn list(dir: String) -> Result<Vec<Piece>, String> {
        let cannot = |error| {
            format!(
                "cannot list {dir}: {error}; a guest sees what it is granted: --dir HOST_DIR::{dir}:ro"
            )
        };
        let mut entries: Vec<String> = Vec::new();
        for entry in fs::read_dir(&dir).map_err(cannot)? {
            let name = entry.map_err(cannot)?.file_name();
            entries.extend(name.to_str().map(str::to_owned));
        }
        // What a directory's order is depends on the machine.
        entries.sort();

        let (mut pieces, mut below) = (Vec::new(), Vec::new());
        for name in entries.iter().filter(|name| !text::is_skipped(name)) {
            let path = format!("{dir}/{name}");
            match fs::symlink_metadata(&path) {
                Ok(about) if about.is_dir() => below.push(list::remote(path)),
                Ok(about) if about.is_file() => pieces.extend(cut(&path, about.len())),
                // A link might lead in a circle.
                Ok(_) => {}
                Err(error) => eprintln!("{path} is left out: {error}"),
            }
        }
        for more in get_all(&below)? {
            pieces.extend(more);
        }
        Ok(pieces)
    }

    /// Counts the words of some pieces; gives back a list of counts for each reducer.
    #[task(retries = 2)]
    pub fn map(pieces: Vec<Piece>, letters: u32) -> Result<Vec<Future<Vec<Count>>>, String> {
        let mut shares = vec![BTreeMap::<String, u64>::new(); REDUCERS as usize];
        for piece in &pieces {
            let read = text::words(Path::new(&piece.path), piece.start..piece.end, |word| {
                if word.chars().count() >= letters as usize {
                    let share = text::hash(&word) % u64::from(REDUCERS);
                    *shares[share as usize].entry(word).or_default() += 1;
                }
            });
            read.map_err(|error| format!("cannot read {}: {error}", piece.path))?;
        }
        let stored = shares
            .into_iter()
            .map(|share| put(share.into_iter().collect()));
        Ok(stored.collect::<Result<_, Error>>()?)
    }

    /// Adds up one share of all words.
    #[task(memory = "128MiB")]
    pub fn reduce(parts: Vec<Future<Vec<Count>>>, count: u32) -> Result<Reduced, Error> {
        let mut sums = BTreeMap::<String, u64>::new();
        for part in &parts {
            for (word, n) in part.get()? {
                *sums.entry(word).or_default() += n;
            }
        }
        Ok(Reduced {
            words: sums.values().sum(),
            different: sums.len() as u64,
            top: most_frequent(sums, count),
        })
    }

    /// Maps all batches, and tells how far it is whenever a task has ended.
    fn map_all(
        batches: &[Vec<Piece>],
        letters: u32,
    ) -> Result<Vec<Vec<Future<Vec<Count>>>>, Error> {
        let start = |batch| map::remote(batch, letters);
        let maps: Vec<_> = batches.iter().map(start).collect();
        let mut rest = maps.clone();
        while !rest.is_empty() {
            (_, rest) = wait(rest, 1, None)?;
            eprintln!("mapped {} of {}", maps.len() - rest.len(), maps.len());
        }
        get_all(&maps)
    }

    /// A text in pieces that are not much larger than a batch. Nothing of a file that is no text.
    fn cut(path: &str, bytes: u64) -> Vec<Piece> {
        match text::is_text(Path::new(path)) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(error) => {
                eprintln!("{path} is left out: {error}");
                return Vec::new();
            }
        }
        let starts = (0..bytes).step_by(BATCH_BYTES as usize);
        let piece = |start| Piece {
            path: path.to_owned(),
            start,
            end: bytes.min(start + BATCH_BYTES),
        };
        starts.map(piece).collect()
    }

    /// Small pieces together, so that none of the tasks has little to do.
    fn batches(pieces: Vec<Piece>) -> Vec<Vec<Piece>> {
        let mut batches: Vec<Vec<Piece>> = Vec::new();
        let mut room = 0;
        for piece in pieces {
            let bytes = piece.end - piece.start;
            match batches.last_mut() {
                Some(batch) if bytes <= room => {
                    room -= bytes;
                    batch.push(piece);
                }
                _ => {
                    room = BATCH_BYTES.saturating_sub(bytes);
                    batches.push(vec![piece]);
                }
            }
        }
        batches
    }

    /// The most frequent words first; of equally frequent ones, the first in the alphabet.
    fn most_frequent(counts: impl IntoIterator<Item = Count>, count: u32) -> Vec<Count> {
        let mut counts: Vec<Count> = counts.into_iter().collect();
        counts.sort_by(|(a, n), (b, m)| m.cmp(n).then_with(|| a.cmp(b)));
        counts.truncate(count as usize);
        counts
    }

    /// For people; standard output of a function is theirs, as its result has a place of its own.
    fn print(summary: &Summary) {
        let most = summary.top.first().map_or(1, |(_, n)| *n);
        for (word, n) in &summary.top {
            let bar = "█".repeat((n * 40 / most) as usize);
            println!("{word:>20} {n:>8} {bar}");
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn sources() -> String {
            concat!(env!("CARGO_MANIFEST_DIR"), "/src").to_owned()
        }

        #[test]
        fn the_words_of_this_crate_are_counted() {
            let summary = top::remote(sources(), 5, 1).get().unwrap();
            assert_eq!(summary.files, 2);
            assert_eq!(summary.top.len(), 5);
            assert!(summary.top.is_sorted_by_key(|(_, n)| u64::MAX - n));
            assert!(summary.words > summary.different);

            // In one go, without pieces, batches and reducers.
            let mut words = Vec::new();
            for piece in list(sources()).unwrap() {
                text::words(Path::new(&piece.path), 0..piece.end, |word| {
                    words.push(word)
                })
                .unwrap();
            }
            assert_eq!(summary.words, words.len() as u64);
            let (word, n) = &summary.top[0];
            assert_eq!(
                *n,
                words.iter().filter(|other| *other == word).count() as u64
            );
        }

        #[test]
        fn small_pieces_share_a_task() {
            let piece = |bytes| Piece {
                path: String::new(),
                start: 0,
                end: bytes,
            };
            let sizes = [BATCH_BYTES - 1, 1, 1, BATCH_BYTES, 5];
            let batches = batches(sizes.map(piece).to_vec());
            let sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
            assert_eq!(sizes, [2, 1, 1, 1]);
        }

        #[test]
        fn a_directory_that_is_not_there_is_an_error() {
            let error = top::remote("/nowhere", 1, 1).get().unwrap_err();
            assert!(
                error.to_string().contains("--dir HOST_DIR::/nowhere:ro"),
                "{error}"
            );
        }
    }
}
