//! PNG files, row by row: no picture is in memory as a whole.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};

use png::{BitDepth, ColorType, Decoder, Encoder, StreamWriter, Transformations};

use crate::bands::{self, PIXEL};

/// Reads a PNG as RGB.
pub struct Reader {
    pub width: u32,
    pub height: u32,
    path: String,
    png: png::Reader<BufReader<File>>,
    color: ColorType,
}

impl Reader {
    pub fn open(path: &str) -> Result<Self, String> {
        let cannot = |error: &dyn std::fmt::Display| format!("cannot read {path}: {error}");
        let file = File::open(path).map_err(|error| cannot(&error))?;
        let mut decoder = Decoder::new(BufReader::new(file));
        // Eight bits a colour, whatever the file has.
        decoder.set_transformations(Transformations::normalize_to_color8());
        let png = decoder.read_info().map_err(|error| cannot(&error))?;
        if png.info().interlaced {
            return Err(cannot(&"it is interlaced; save it without"));
        }
        let (width, height) = png.info().size();
        bands::check(width, height)?;
        let (color, _) = png.output_color_type();
        Ok(Reader {
            width,
            height,
            path: path.to_owned(),
            png,
            color,
        })
    }

    /// The next rows.
    pub fn rows(&mut self, count: usize) -> Result<Vec<u8>, String> {
        let mut pixels = Vec::with_capacity(count * self.width as usize * PIXEL);
        for _ in 0..count {
            let row = match self.png.next_row() {
                Ok(Some(row)) => row,
                Ok(None) => return Err(format!("cannot read {}: it ends early", self.path)),
                Err(error) => return Err(format!("cannot read {}: {error}", self.path)),
            };
            let samples = row.data().chunks_exact(self.color.samples());
            pixels.extend(samples.flat_map(|pixel| match *pixel {
                // Grey, with or without alpha, which is left out.
                [grey] | [grey, _] => [grey; PIXEL],
                [red, green, blue, ..] => [red, green, blue],
                [] => [0; PIXEL],
            }));
        }
        Ok(pixels)
    }
}

/// Writes an RGB PNG.
pub struct Writer {
    path: String,
    png: StreamWriter<'static, BufWriter<File>>,
}

impl Writer {
    pub fn create(path: &str, width: u32, height: u32) -> Result<Self, String> {
        let cannot = |error: &dyn std::fmt::Display| format!("cannot write {path}: {error}");
        let file = File::create(path).map_err(|error| cannot(&error))?;
        let mut encoder = Encoder::new(BufWriter::new(file), width, height);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        encoder.set_compression(png::Compression::Fast);
        let header = encoder.write_header().map_err(|error| cannot(&error))?;
        let png = header
            .into_stream_writer()
            .map_err(|error| cannot(&error))?;
        Ok(Writer {
            path: path.to_owned(),
            png,
        })
    }

    pub fn rows(&mut self, rows: &[u8]) -> Result<(), String> {
        let written = self.png.write_all(rows);
        written.map_err(|error| format!("cannot write {}: {error}", self.path))
    }

    /// The length of the file in bytes.
    pub fn finish(self) -> Result<u64, String> {
        let path = self.path;
        let cannot = |error: &dyn std::fmt::Display| format!("cannot write {path}: {error}");
        self.png.finish().map_err(|error| cannot(&error))?;
        let about = fs::metadata(&path).map_err(|error| cannot(&error))?;
        Ok(about.len())
    }
}
