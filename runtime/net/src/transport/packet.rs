//! How packets are encrypted.
//!
//! Owns AES-128-GCM for QUIC's packets, by AWS-LC: with large datagrams it takes half the time of ring's, since it has
//! code for wider registers. All else of TLS is ring's, the protection of headers too. On the wire it is the same.
//! Must not: choose keys or count packets; that is QUIC's.

use std::sync::LazyLock;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::cipher::{AeadKey, Iv, Nonce as PacketNonce};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey, Tag};
use rustls::{Error, SupportedCipherSuite, Tls13CipherSuite};

/// TLS 1.3's suite with AES-128-GCM and SHA-256.
pub(crate) fn suite() -> SupportedCipherSuite {
    static SUITE: LazyLock<Tls13CipherSuite> = LazyLock::new(|| {
        let ring = ring();
        Tls13CipherSuite {
            common: CipherSuiteCommon {
                suite: ring.common.suite,
                hash_provider: ring.common.hash_provider,
                confidentiality_limit: ring.common.confidentiality_limit,
            },
            hkdf_provider: ring.hkdf_provider,
            aead_alg: ring.aead_alg,
            quic: Some(&Packets),
        }
    });
    SupportedCipherSuite::Tls13(&SUITE)
}

fn ring() -> &'static Tls13CipherSuite {
    let suite = TLS13_AES_128_GCM_SHA256.tls13();
    suite.expect("it is of TLS 1.3")
}

fn rings_packets() -> &'static dyn Algorithm {
    ring().quic.expect("it can be used with QUIC")
}

#[derive(Debug)]
struct Packets;

impl Algorithm for Packets {
    fn packet_key(&self, key: AeadKey, iv: Iv) -> Box<dyn PacketKey> {
        let bytes: &[u8] = key.as_ref();
        let unbound = UnboundKey::new(&AES_128_GCM, bytes).expect("it has the length of a key");
        let key = LessSafeKey::new(unbound);
        Box::new(Key { key, iv })
    }

    fn header_protection_key(&self, key: AeadKey) -> Box<dyn HeaderProtectionKey> {
        rings_packets().header_protection_key(key)
    }

    fn aead_key_len(&self) -> usize {
        AES_128_GCM.key_len()
    }
}

struct Key {
    key: LessSafeKey,
    iv: Iv,
}

impl Key {
    fn nonce(&self, packet_number: u64) -> Nonce {
        // QUIC uses no number twice with a key.
        Nonce::assume_unique_for_key(PacketNonce::new(&self.iv, packet_number).0)
    }
}

impl PacketKey for Key {
    fn encrypt_in_place(
        &self,
        packet_number: u64,
        header: &[u8],
        payload: &mut [u8],
    ) -> Result<Tag, Error> {
        let nonce = self.nonce(packet_number);
        let sealed = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(header), payload);
        let tag = sealed.map_err(|_| Error::EncryptError)?;
        Ok(Tag::from(tag.as_ref()))
    }

    fn decrypt_in_place<'a>(
        &self,
        packet_number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        let nonce = self.nonce(packet_number);
        let opened = self.key.open_in_place(nonce, Aad::from(header), payload);
        let plain = opened.map_err(|_| Error::DecryptError)?;
        Ok(plain)
    }

    fn tag_len(&self) -> usize {
        AES_128_GCM.tag_len()
    }

    /// As RFC 9001, 6.6, says, as the next.
    fn confidentiality_limit(&self) -> u64 {
        1 << 23
    }

    fn integrity_limit(&self) -> u64 {
        1 << 52
    }
}

#[cfg(test)]
mod tests {
    use rustls::Side;
    use rustls::quic::{Suite, Version};

    use super::*;

    /// What one side writes with and the other reads with.
    fn keys(quic: &'static dyn Algorithm) -> [Box<dyn PacketKey>; 2] {
        let suite = Suite {
            suite: ring(),
            quic,
        };
        let keys = |side| suite.keys(b"any number", side, Version::V1);
        [
            keys(Side::Client).local.packet,
            keys(Side::Server).remote.packet,
        ]
    }

    #[test]
    fn packets_are_those_of_ring() {
        let ([ours, our_reader], [rings, rings_reader]) = (keys(&Packets), keys(rings_packets()));
        assert_eq!(ours.tag_len(), rings.tag_len());
        assert_eq!(ours.confidentiality_limit(), rings.confidentiality_limit());
        assert_eq!(ours.integrity_limit(), rings.integrity_limit());
        for (number, len) in [(0, 0), (1, 1), (1 << 40, 1200), (u64::MAX, 65_000)] {
            let plain: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let seal = |key: &dyn PacketKey| {
                let mut packet = plain.clone();
                let tag = key.encrypt_in_place(number, b"header", &mut packet);
                packet.extend_from_slice(tag.expect("sealed").as_ref());
                packet
            };
            let sealed = seal(&*ours);
            assert_eq!(sealed, seal(&*rings));
            for key in [&our_reader, &rings_reader] {
                let mut packet = sealed.clone();
                let opened = key.decrypt_in_place(number, b"header", &mut packet);
                assert_eq!(opened.expect("it is whole"), plain);
                let mut changed = sealed.clone();
                changed[usize::from(len > 1)] ^= 1;
                assert!(
                    key.decrypt_in_place(number, b"header", &mut changed)
                        .is_err()
                );
                assert!(
                    key.decrypt_in_place(number, b"Header", &mut sealed.clone())
                        .is_err()
                );
                assert!(
                    key.decrypt_in_place(number ^ 1, b"header", &mut sealed.clone())
                        .is_err()
                );
            }
        }
    }
}
