//! Joins the bands that `render` made into a PNG.
//!
//! ```text
//! wasmrun submit target/guests/assemble.wasm --dir target/demo::/demo -- \
//!     --width 960 --height 540 /demo/parts /demo/image.png
//! ```
//!
//! A program with a real library in it: reads `band-0.bin`, `band-1.bin` and so on from one
//! granted directory, checks that together they are the picture, and writes the PNG.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
Joins bands of raw RGB rows into a PNG.

usage: assemble --width PIXELS --height PIXELS PARTS_DIR OUTPUT.png

PARTS_DIR holds band-0.bin, band-1.bin and so on, from top to bottom.";

/// More than this would not fit into a 32-bit guest's memory.
const PIXELS_MAX: u64 = 1 << 28;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "-h" || arg == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let request = match Request::parse(&args) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("assemble: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match request.run() {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("assemble: {error}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug, PartialEq)]
struct Request {
    width: u32,
    height: u32,
    parts: PathBuf,
    output: PathBuf,
}

impl Request {
    fn parse(args: &[String]) -> Result<Self, String> {
        let (mut width, mut height) = (None, None);
        let mut paths = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let size = match arg.as_str() {
                "--width" => &mut width,
                "--height" => &mut height,
                option if option.starts_with('-') => {
                    return Err(format!("no such option: {option}"));
                }
                path => {
                    paths.push(PathBuf::from(path));
                    continue;
                }
            };
            let value = args
                .next()
                .ok_or_else(|| format!("{arg} needs a number of pixels"))?;
            let pixels = value
                .parse::<u32>()
                .map_err(|error| format!("{arg} {value}: {error}"))?;
            *size = Some(pixels);
        }
        let width = width.ok_or("--width is missing")?;
        let height = height.ok_or("--height is missing")?;
        let pixels = u64::from(width) * u64::from(height);
        if pixels == 0 || pixels > PIXELS_MAX {
            return Err(format!("a picture of {width} x {height} cannot be made"));
        }
        let [parts, output] = <[PathBuf; 2]>::try_from(paths)
            .map_err(|paths| format!("expected PARTS_DIR and OUTPUT, got {} paths", paths.len()))?;
        Ok(Request {
            width,
            height,
            parts,
            output,
        })
    }

    /// Makes the picture and says what was made.
    fn run(&self) -> Result<String, String> {
        let bands = bands_in(&self.parts)?;
        let rgb = join(&bands, self.width, self.height)?;
        // All or nothing: the whole file is made in memory, then written.
        let png = encode(&rgb, self.width, self.height).map_err(|error| error.to_string())?;
        let file = File::create(&self.output).map_err(|error| at(&self.output, error))?;
        let mut file = BufWriter::new(file);
        file.write_all(&png)
            .and_then(|()| file.flush())
            .map_err(|e| at(&self.output, e))?;
        Ok(format!(
            "{}: {} x {}, {} bands, {} bytes",
            self.output.display(),
            self.width,
            self.height,
            bands.len(),
            png.len()
        ))
    }
}

/// The files of the bands, from top to bottom; none may be missing in between.
fn bands_in(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut bands = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| at(dir, error))? {
        let path = entry.map_err(|error| at(dir, error))?.path();
        if let Some(index) = path.file_name().and_then(band_index) {
            bands.push((index, path));
        }
    }
    bands.sort();
    for (expected, (index, _)) in bands.iter().enumerate() {
        if expected as u64 != *index {
            return Err(format!("{}: band-{expected}.bin is missing", dir.display()));
        }
    }
    Ok(bands.into_iter().map(|(_, path)| path).collect())
}

/// The number in `band-NUMBER.bin`.
fn band_index(name: &OsStr) -> Option<u64> {
    name.to_str()?
        .strip_prefix("band-")?
        .strip_suffix(".bin")?
        .parse()
        .ok()
}

/// Reads the bands one after the other. Each must be whole rows, and all together the picture.
fn join(bands: &[PathBuf], width: u32, height: u32) -> Result<Vec<u8>, String> {
    let row = width as usize * 3;
    let whole = row * height as usize;
    let mut rgb = Vec::with_capacity(whole);
    for path in bands {
        let band = fs::read(path).map_err(|error| at(path, error))?;
        if !band.len().is_multiple_of(row) {
            let length = band.len();
            return Err(at(
                path,
                format!("{length} bytes are not whole rows of {row} bytes"),
            ));
        }
        rgb.extend(band);
    }
    if rgb.len() != whole {
        let (found, count) = (rgb.len(), bands.len());
        return Err(format!(
            "{count} bands are {found} bytes, but {width} x {height} is {whole}"
        ));
    }
    Ok(rgb)
}

fn encode(rgb: &[u8], width: u32, height: u32) -> Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(rgb)?;
    writer.finish()?;
    Ok(bytes)
}

/// An error with the path it is about.
fn at(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Request, String> {
        let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
        Request::parse(&args)
    }

    #[test]
    fn arguments_may_come_in_any_order() {
        let expected = Request {
            width: 4,
            height: 3,
            parts: PathBuf::from("in"),
            output: PathBuf::from("out.png"),
        };
        assert_eq!(parse("--width 4 --height 3 in out.png"), Ok(expected));
        assert!(parse("in --height 3 out.png --width 4").is_ok());
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (args, error) in [
            ("in out.png --height 3", "--width is missing"),
            (
                "--width x --height 3 in out.png",
                "--width x: invalid digit found in string",
            ),
            ("in --width", "--width needs a number of pixels"),
            (
                "--width 1 --height 1 in",
                "expected PARTS_DIR and OUTPUT, got 1 paths",
            ),
            (
                "--width 0 --height 1 in out",
                "a picture of 0 x 1 cannot be made",
            ),
            ("--fast", "no such option: --fast"),
        ] {
            assert_eq!(parse(args), Err(error.to_owned()));
        }
    }

    #[test]
    fn bands_are_joined_in_order_of_number() {
        let dir = std::env::temp_dir().join(format!("assemble-test-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for index in 0..12_u8 {
            fs::write(dir.join(format!("band-{index}.bin")), [index; 6]).unwrap();
        }
        fs::write(dir.join("notes.txt"), "not a band").unwrap();

        let bands = bands_in(&dir).unwrap();
        let rgb = join(&bands, 2, 12).unwrap();
        assert_eq!(rgb[6 * 11..], [11; 6]);
        assert!(
            join(&bands, 3, 12)
                .unwrap_err()
                .contains("not whole rows of 9 bytes")
        );
        assert!(
            join(&bands, 2, 13)
                .unwrap_err()
                .contains("12 bands are 72 bytes")
        );

        fs::remove_file(dir.join("band-3.bin")).unwrap();
        assert!(
            bands_in(&dir)
                .unwrap_err()
                .ends_with("band-3.bin is missing")
        );
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_encoded_decodes_to_the_same() {
        let rgb: Vec<u8> = (0..4 * 3 * 3).collect();
        let png = encode(&rgb, 4, 3).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(png))
            .read_info()
            .unwrap();
        let mut decoded = vec![0; rgb.len()];
        reader.next_frame(&mut decoded).unwrap();
        assert_eq!(decoded, rgb);
    }
}
