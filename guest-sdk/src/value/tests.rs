//! The bytes of values, against what the host has for the same WIT types.

use super::*;

fn there_and_back<T: Value + Clone + PartialEq + std::fmt::Debug>(value: T, expected: &[u8]) {
    let encoded = Encoded::of(value.clone()).unwrap();
    assert_eq!(encoded.bytes, expected, "{value:?}");
    assert_eq!(value.encode().unwrap(), expected, "{value:?}");
    assert_eq!(encoded.read::<T>().unwrap(), value);
}

#[test]
fn values_have_the_bytes_of_their_wit_type() {
    there_and_back(true, &[1]);
    there_and_back(300_u32, &[0xac, 2]);
    there_and_back(-1_i64, &[1]);
    there_and_back(-1_i8, &[0xff]);
    there_and_back(1.0_f32, &[0, 0, 0x80, 0x3f]);
    there_and_back('é', &[2, 0xc3, 0xa9]);
    there_and_back("hi".to_owned(), &[2, b'h', b'i']);
    there_and_back(Some(7_u8), &[1, 7]);
    there_and_back((1_u8, false), &[1, 0]);
    there_and_back(Ok::<(), String>(()), &[0]);
    there_and_back(Err::<u8, String>("e".to_owned()), &[1, 1, b'e']);
    there_and_back((), &[]);
    there_and_back(vec!['a', 'b'], &[2, 1, b'a', 1, b'b']);
}

#[test]
fn only_a_whole_list_of_numbers_is_a_buffer() {
    there_and_back(vec![1_u16, 2], &[1, 0, 2, 0]);
    there_and_back(vec![1_u8, 2], &[1, 2]);
    there_and_back(Some(vec![1_u16, 2]), &[1, 2, 1, 2]);
    there_and_back(vec![vec![1_u16], vec![]], &[2, 1, 1, 0]);
    there_and_back(vec![true], &[1, 1]);
    assert_eq!(Vec::<f64>::FORM, Form::Buffer(Number::F64));
    assert_eq!(Vec::<Vec<f64>>::FORM, Form::Postcard);
}

#[test]
fn lists_within_results_have_the_bytes_of_serde() {
    fn same<T: Value + PartialEq + std::fmt::Debug>(value: T) {
        let bytes = value.encode().unwrap();
        assert_eq!(bytes, to_postcard(&value).unwrap());
        assert_eq!(T::decode(bytes.clone()).unwrap(), value);
        assert_eq!(value.encode_inner().unwrap(), bytes);
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(T::decode(longer).is_err());
        assert!(T::decode(bytes[..bytes.len() - 1].to_vec()).is_err());
    }
    same(Ok::<Vec<u8>, String>(vec![7; 300]));
    same(Ok::<Vec<f64>, String>(vec![1.5; 200]));
    same(Ok::<Vec<i8>, ()>(vec![-1]));
    same(Ok::<Vec<u64>, ()>(vec![1, 1 << 40]));
    same(Err::<u8, Vec<f32>>(vec![0.5]));
    same(Ok::<Result<Vec<u8>, ()>, ()>(Ok(vec![1])));
    assert!(Result::<u8, ()>::decode(vec![2]).is_err());
    assert!(Result::<u8, ()>::decode(Vec::new()).is_err());
}

#[test]
fn bytes_stay_where_they_are() {
    let bytes = vec![1_u8; 1000];
    let start = bytes.as_ptr();
    let encoded = Encoded::of(bytes).unwrap();
    assert_eq!(encoded.bytes.as_ptr(), start);
    let read: Vec<u8> = encoded.read().unwrap();
    assert_eq!(read.as_ptr(), start);
}

#[test]
fn other_bytes_are_refused() {
    let refused = |result: Result<String, Error>| match result {
        Err(Error::Refused(message)) => message,
        other => panic!("{other:?}"),
    };
    let postcard = |bytes: &[u8]| Encoded {
        form: Form::Postcard,
        bytes: bytes.to_vec(),
    };
    assert!(refused(postcard(&[1, b'a', 0]).read()).contains("1 bytes are left over"));
    assert!(refused(postcard(&[9, b'a']).read()).contains("String"));
    let buffer = Encoded {
        form: Form::Buffer(Number::U8),
        bytes: vec![1],
    };
    assert!(refused(buffer.read()).contains("a list of u8"));
    assert!(Vec::<u32>::decode(vec![1, 2, 3]).is_err());
}
