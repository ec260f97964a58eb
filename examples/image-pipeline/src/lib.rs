//! Turns a picture into a sketch, in bands that tasks map instead of copying.
//!
//! ```text
//! mkdir -p target/sketch
//! wasmrun submit target/guests/image-pipeline.wasm --dir target/sketch::/out \
//!     --invoke 'sketch(fractal({width: 4096, height: 3072}), "/out")'
//! ```
//!
//! `fractal` paints the picture, `file("/out/photo.png")` reads one. A picture is a list of bands, each an
//! object in the store, and each step of the pipeline is a task for every band: blur, sketch, shrink.
//! Blurring needs rows of the neighbours, so a task is given three bands. They are mapped: a task reads
//! megabytes without copying them and without waiting for other bands than its three. The driver sees handles
//! only: all tasks are started before the first has ended, and futures say which goes when.
//!
//! `bands` knows how a picture is cut, `filter` what is done to pixels, `fractal` paints, `files` reads
//! and writes PNG. None of them knows of tasks.

mod bands;
mod files;
mod filter;
mod fractal;

/// What can be called.
#[wasmrun_guest::module(memory = "64MiB", dirs("/out"))]
mod app {
    use wasmrun_guest::prelude::*;

    use crate::bands::{self, Rows};
    use crate::{files, filter, fractal};

    /// How far a pixel is spread, in pixels to each side.
    const RADIUS: usize = 4;
    /// A small picture has one pixel for so many times so many.
    const SHRINK: usize = 8;

    /// In pixels.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Size {
        pub width: u32,
        pub height: u32,
    }

    /// Where the picture comes from.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Source {
        /// A PNG in a granted directory.
        File(String),
        /// It is painted.
        Fractal(Size),
    }

    /// Bands of RGB rows, from top to bottom.
    pub struct Picture {
        pub size: Size,
        pub bands: Vec<Future<Vec<u8>>>,
    }

    /// What was made.
    #[derive(Debug, PartialEq)]
    pub struct Sketched {
        pub size: Size,
        /// How many bands the picture was cut into.
        pub bands: u32,
        /// Raw bytes of all objects that tasks mapped, together.
        pub mapped_bytes: u64,
        /// The files, and how long they are in bytes.
        pub files: Vec<(String, u64)>,
    }

    /// Makes `sketch.png` and `small.png` in a directory.
    #[task]
    pub fn sketch(source: Source, out: String) -> Result<Sketched, String> {
        let Picture { size, bands } = picture(source)?;
        let width = size.width;
        let nothing = put(Vec::new())?;
        let blurred = with_neighbours(&bands, &nothing, |[above, own, below]| {
            blur::remote(above, own, below, width)
        });
        let inked = with_neighbours(&blurred, &nothing, |[above, own, below]| {
            ink::remote(above, own, below, width)
        });
        let small: Vec<_> = inked
            .iter()
            .map(|band| shrink::remote(band, width))
            .collect();

        let steps = [
            ("picture", &bands),
            ("blurred", &blurred),
            ("inked", &inked),
            ("shrunk", &small),
        ];
        for (name, futures) in steps {
            watch(name, futures)?;
        }
        let small_size = Size {
            width: bands::shrunk(size.width, SHRINK),
            height: bands::shrunk(size.height, SHRINK),
        };
        let mut written = Vec::new();
        for (name, size, bands) in [("sketch", size, &inked), ("small", small_size, &small)] {
            let path = format!("{out}/{name}.png");
            let picture = Picture {
                size,
                bands: bands.clone(),
            };
            written.push((path.clone(), encode::remote(picture, path)));
        }
        let mut files = Vec::new();
        for (path, bytes) in written {
            let bytes = bytes.get()?;
            println!("{path}: {bytes} bytes");
            files.push((path, bytes));
        }
        let raw = bands::bytes(size.width, size.height);
        Ok(Sketched {
            size,
            bands: bands.len() as u32,
            // Twice with both neighbours, less those that the first and the last have not; once each to
            // shrink and to write; the small one is written too.
            mapped_bytes: 2 * (3 * raw - edges(&bands)?)
                + 2 * raw
                + bands::bytes(small_size.width, small_size.height),
            files,
        })
    }

    /// Paints one band.
    #[task(retries = 2)]
    pub fn paint(size: Size, band: u32) -> Vec<u8> {
        fractal::paint(size.width, size.height, bands::rows(size.height, band))
    }

    /// Reads a PNG; stores it band by band, so that it is never in one piece.
    #[task]
    pub fn decode(path: String) -> Result<Picture, String> {
        let mut reader = files::Reader::open(&path)?;
        let (width, height) = (reader.width, reader.height);
        let mut stored = Vec::new();
        for band in 0..bands::count(height) {
            stored.push(put(reader.rows(bands::rows(height, band).len())?)?);
        }
        Ok(Picture {
            size: Size { width, height },
            bands: stored,
        })
    }

    /// Softens a band. The first and the last have no neighbour: an empty list.
    #[task(retries = 2)]
    pub fn blur(above: Mapped<u8>, own: Mapped<u8>, below: Mapped<u8>, width: u32) -> Vec<u8> {
        filter::blur(&Rows::new(&above, &own, &below, width), RADIUS)
    }

    /// Fewer colours, and ink where they change.
    #[task(retries = 2)]
    pub fn ink(above: Mapped<u8>, own: Mapped<u8>, below: Mapped<u8>, width: u32) -> Vec<u8> {
        filter::ink(&Rows::new(&above, &own, &below, width))
    }

    /// A pixel for a square of them.
    #[task(retries = 2)]
    pub fn shrink(own: Mapped<u8>, width: u32) -> Vec<u8> {
        filter::shrink(&Rows::new(&[], &own, &[], width), SHRINK)
    }

    /// Writes a PNG; returns its length. One band is mapped at a time.
    #[task]
    pub fn encode(picture: Picture, path: String) -> Result<u64, String> {
        let mut writer = files::Writer::create(&path, picture.size.width, picture.size.height)?;
        for band in &picture.bands {
            writer.rows(&band.map()?)?;
        }
        writer.finish()
    }

    fn picture(source: Source) -> Result<Picture, String> {
        let size = match source {
            Source::File(path) => return Ok(decode::remote(path).get()?),
            Source::Fractal(size) => size,
        };
        bands::check(size.width, size.height)?;
        let paint = |band| paint::remote(size, band);
        Ok(Picture {
            size,
            bands: (0..bands::count(size.height)).map(paint).collect(),
        })
    }

    /// Starts a task for each band, which is given the one above and the one below too.
    fn with_neighbours(
        bands: &[Future<Vec<u8>>],
        nothing: &Future<Vec<u8>>,
        start: impl Fn([&Future<Vec<u8>>; 3]) -> Future<Vec<u8>>,
    ) -> Vec<Future<Vec<u8>>> {
        let neighbours = |at: usize| {
            let above = at.checked_sub(1).map_or(nothing, |at| &bands[at]);
            [above, &bands[at], bands.get(at + 1).unwrap_or(nothing)]
        };
        (0..bands.len()).map(|at| start(neighbours(at))).collect()
    }

    /// Tells how far a step is, until it is through.
    fn watch(name: &str, futures: &[Future<Vec<u8>>]) -> Result<(), Error> {
        let mut rest = futures.to_vec();
        while !rest.is_empty() {
            (_, rest) = wait(rest, 1, None)?;
            let done = futures.len() - rest.len();
            eprintln!("{name} {done:>3} of {} {}", futures.len(), "▪".repeat(done));
        }
        Ok(())
    }

    /// Bytes of the first band and the last.
    fn edges(bands: &[Future<Vec<u8>>]) -> Result<u64, Error> {
        let sizes = [bands.first(), bands.last()].into_iter().flatten();
        sizes.map(Future::size_bytes).sum()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// What `sketch` makes of a fractal of 96 times 600 pixels: also in tests/it/dataflow_examples.rs.
        const SKETCH: u64 = 0x4847_3b6e_2b06_c0cc;
        const SMALL: u64 = 0x0912_1802_f4de_6fa1;

        /// FNV-1a: whether bytes are the same, not whether somebody means ill.
        fn digest(bytes: &[u8]) -> u64 {
            bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            })
        }

        /// All pixels of a PNG.
        fn pixels(path: String) -> Vec<u8> {
            let picture = decode::remote(path).get().unwrap();
            let bands = picture.bands.iter().map(|band| band.get().unwrap());
            bands.flatten().collect()
        }

        #[test]
        fn a_fractal_becomes_a_sketch_and_a_sketch_can_be_read_again() {
            let dir = std::env::temp_dir().join(format!("image-pipeline-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            let out = dir.to_str().unwrap().to_owned();
            let size = Size {
                width: 96,
                height: 600,
            };
            let sketched = sketch::remote(Source::Fractal(size), &out).get().unwrap();
            assert_eq!((sketched.size, sketched.bands), (size, 3));

            let again = decode::remote(format!("{out}/sketch.png")).get().unwrap();
            assert_eq!(again.size, size);
            let bytes = |band: &Future<Vec<u8>>| band.size_bytes().unwrap();
            assert_eq!(again.bands.iter().map(bytes).sum::<u64>(), 96 * 600 * 3);
            let small = decode::remote(format!("{out}/small.png")).get().unwrap();
            assert_eq!((small.size.width, small.size.height), (12, 75));

            // Every pixel is as if the picture were in one piece.
            let (width, height) = (size.width, size.height);
            let one = |filter: &dyn Fn(&Rows) -> Vec<u8>, pixels: &[u8]| {
                filter(&Rows::new(&[], pixels, &[], width))
            };
            let whole = fractal::paint(width, height, 0..height);
            let blurred = one(&|rows| filter::blur(rows, RADIUS), &whole);
            let inked = one(&|rows| filter::ink(rows), &blurred);
            assert!(pixels(format!("{out}/sketch.png")) == inked);
            let shrunk = one(&|rows| filter::shrink(rows, SHRINK), &inked);
            assert!(pixels(format!("{out}/small.png")) == shrunk);
            let files = ["sketch", "small"];
            let files = files.map(|name| std::fs::read(dir.join(format!("{name}.png"))).unwrap());
            assert_eq!(files.map(|bytes| digest(&bytes)), [SKETCH, SMALL]);
            std::fs::remove_dir_all(&dir).unwrap();
        }

        #[test]
        fn what_cannot_be_read_is_an_error() {
            let source = Source::File("/nowhere.png".to_owned());
            let error = sketch::remote(source, "/out").get().unwrap_err();
            assert!(error.to_string().contains("/nowhere.png"), "{error}");
        }
    }
}
