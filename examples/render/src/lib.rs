//! Ray-traces one band of a picture; a task array renders it all.
//!
//! ```text
//! wasmrun submit target/guests/render.wasm --array 0-31 \
//!     --invoke 'band($i, 32, 960, 540, 16)' -O 'target/demo/parts/band-$i.bin'
//! ```
//!
//! A component with one typed function (see `wit/render.wit`): no files, no clock and no
//! randomness from outside, so a lost band can be rendered again, anywhere, to the same bytes.
//! `assemble`, the example beside this one, makes a PNG of the bands.
//!
//! `scene` says what there is to see, `bvh` finds what a ray hits, `trace` follows light, and
//! `camera` turns pixels into rays and light into bytes.

#[allow(missing_docs, reason = "documented in wit/render.wit")]
mod bindings {
    wit_bindgen::generate!({ world: "render" });
}

mod bvh;
mod camera;
mod sampler;
mod scene;
mod trace;
mod vec3;

use std::ops::RangeInclusive;

wasmrun_guest::manifest!(
    r#"{
        "version": 1,
        "functions": {
            "band": {"resources": {"CPU": "1", "memory": "64MiB"}, "retries": 3, "time_limit": "10m"}
        }
    }"#
);

struct Render;

impl bindings::Guest for Render {
    fn band(index: u32, bands: u32, width: u32, height: u32, samples: u32) -> Vec<u8> {
        let side = 1..=16_384;
        check("width", width, &side);
        check("height", height, &side);
        check("bands", bands, &(1..=height));
        check("index", index, &(0..=bands - 1));
        check("samples", samples, &(1..=65_536));
        let scene = scene::Scene::new();
        let camera = camera::Camera::new(width, height);
        // No overflow: both factors are at most 16,384.
        let rows = index * height / bands..(index + 1) * height / bands;
        camera.render(&scene, rows, samples)
    }
}

/// A wrong argument is the caller's mistake: the task fails with this message on stderr.
fn check(name: &str, value: u32, range: &RangeInclusive<u32>) {
    assert!(
        range.contains(&value),
        "{name} is {value}, but must be in {range:?}"
    );
}

bindings::export!(Render with_types_in bindings);

#[cfg(test)]
mod tests {
    use super::*;
    use bindings::Guest;

    #[test]
    fn bands_join_to_the_same_picture_however_many_there_are() {
        let whole = Render::band(0, 1, 32, 18, 2);
        assert_eq!(whole.len(), 32 * 18 * 3);
        for bands in [2, 5, 18] {
            let joined: Vec<u8> = (0..bands)
                .flat_map(|index| Render::band(index, bands, 32, 18, 2))
                .collect();
            assert!(joined == whole, "{bands} bands");
        }
    }

    #[test]
    fn the_sky_is_brighter_than_the_ground() {
        let picture = Render::band(0, 1, 32, 18, 4);
        let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        let (sky, ground) = picture.split_at(32 * 3 * 3);
        assert!(sum(sky) / sky.len() as u64 > sum(ground) / ground.len() as u64);
    }

    #[test]
    #[should_panic(expected = "index is 4, but must be in 0..=3")]
    fn an_index_past_the_end_is_refused() {
        Render::band(4, 4, 32, 18, 1);
    }
}
