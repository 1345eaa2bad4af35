//! A picture for every name: a part of the Mandelbrot set, smoothed by looking at each point several times.
//!
//! It is nothing but processor time, and the time follows the quality: fewer looks give a coarser picture.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// The picture of a name as PNG. Each point is the mean of `samples` looks at full quality, and of the share `quality`
/// of them, but one at least, below it.
pub fn picture(name: &str, samples: u32, quality: f64) -> Vec<u8> {
    let seed = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (x, y) = PLACES[rng.random_range(0..PLACES.len())];
    let (width, hue) = (rng.random_range(0.004..0.02), rng.random::<f64>());
    let looks = (f64::from(samples) * quality).ceil().max(1.0) as u32;
    let mut pixels = Vec::with_capacity((3 * SIDE * SIDE) as usize);
    for row in 0..SIDE {
        for column in 0..SIDE {
            let mut light = 0.0;
            for _ in 0..looks {
                let across = (f64::from(column) + rng.random::<f64>()) / f64::from(SIDE) - 0.5;
                let down = (f64::from(row) + rng.random::<f64>()) / f64::from(SIDE) - 0.5;
                light += escape(x + across * width, y + down * width);
            }
            pixels.extend(colour(light / f64::from(looks), hue));
        }
    }
    png(&pixels)
}

/// How soon the point leaves, 0 (at once) to 1 (not within the bound).
fn escape(x: f64, y: f64) -> f64 {
    let (mut a, mut b) = (0.0, 0.0);
    for step in 0..STEPS {
        let (aa, bb) = (a * a, b * b);
        if aa + bb > 4.0 {
            return f64::from(step) / f64::from(STEPS);
        }
        (a, b) = (aa - bb + x, 2.0 * a * b + y);
    }
    1.0
}

/// Waves of three colours, a third of a turn apart.
fn colour(light: f64, hue: f64) -> [u8; 3] {
    let channel = |shift: f64| {
        let turn = std::f64::consts::TAU * (hue + shift + 2.0 * light);
        (255.0 * light.sqrt() * (0.6 + 0.4 * turn.cos())) as u8
    };
    [channel(0.0), channel(1.0 / 3.0), channel(2.0 / 3.0)]
}

fn png(pixels: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pixels.len());
    let mut encoder = png::Encoder::new(&mut bytes, SIDE, SIDE);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::Fast);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels));
    written.expect("a picture of the size that was announced can be written to memory");
    bytes
}

/// Width and height, pixels.
const SIDE: u32 = 96;

/// Steps after which a point counts as one that stays.
const STEPS: u32 = 200;

/// Places of the set with something to see, each near its edge.
const PLACES: &[(f64, f64)] =
    &[(-0.7436, 0.1318), (-0.1592, 1.0338), (0.2855, 0.0115), (-1.2507, 0.0201), (-0.7269, 0.1889), (-0.5251, 0.5266)];

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_has_one_picture_and_others_have_others() {
        let picture = |name, quality| super::picture(name, 2, quality);
        assert_eq!(&picture("ada", 1.0)[1..4], b"PNG");
        assert_eq!(picture("ada", 1.0), picture("ada", 1.0));
        assert_ne!(picture("ada", 1.0), picture("alan", 1.0));
        assert_ne!(picture("ada", 1.0), picture("ada", 0.5), "a cheaper picture is another one");
    }
}
