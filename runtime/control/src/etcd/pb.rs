//! The messages of etcd's API, version 3, as far as we use it.
//!
//! Owns their fields and numbers, taken from etcd's public API description (`rpc.proto`, `kv.proto`). Written by
//! hand: a generator would make everybody who builds wasmrun install `protoc`. Fields that we do not use
//! are left out; protobuf skips them.

use bytes::Bytes;

/// Declares messages: each field with what prost is told of it.
macro_rules! messages {
    ($(struct $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty = [$($prost:tt)*],)*
    })*) => {
        $(
            #[derive(Clone, PartialEq, prost::Message)]
            pub struct $name {
                $($(#[$doc])* #[prost($($prost)*)] pub $field: $type,)*
            }
        )*
    };
}

messages! {
    struct ResponseHeader {
        revision: i64 = [int64, tag = "3"],
    }

    struct KeyValue {
        key: Bytes = [bytes = "bytes", tag = "1"],
        create_revision: i64 = [int64, tag = "2"],
        mod_revision: i64 = [int64, tag = "3"],
        version: i64 = [int64, tag = "4"],
        value: Bytes = [bytes = "bytes", tag = "5"],
        lease: i64 = [int64, tag = "6"],
    }

    struct Event {
        /// 0 for a put, 1 for a delete.
        kind: i32 = [int32, tag = "1"],
        kv: Option<KeyValue> = [message, optional, tag = "2"],
    }

    struct RangeRequest {
        key: Bytes = [bytes = "bytes", tag = "1"],
        range_end: Bytes = [bytes = "bytes", tag = "2"],
        limit: i64 = [int64, tag = "3"],
    }

    struct RangeResponse {
        header: Option<ResponseHeader> = [message, optional, tag = "1"],
        kvs: Vec<KeyValue> = [message, repeated, tag = "2"],
        more: bool = [bool, tag = "3"],
    }

    struct PutRequest {
        key: Bytes = [bytes = "bytes", tag = "1"],
        value: Bytes = [bytes = "bytes", tag = "2"],
        lease: i64 = [int64, tag = "3"],
    }

    struct PutResponse {}

    struct DeleteRangeRequest {
        key: Bytes = [bytes = "bytes", tag = "1"],
    }

    struct DeleteRangeResponse {
        deleted: i64 = [int64, tag = "2"],
    }

    struct RequestOp {
        request: Option<request_op::Request> = [oneof = "request_op::Request", tags = "1, 2, 3"],
    }

    struct ResponseOp {
        response: Option<response_op::Response> = [oneof = "response_op::Response", tags = "1, 2, 3"],
    }

    struct Compare {
        /// 0 for equal, 1 for greater.
        result: i32 = [int32, tag = "1"],
        /// What is compared: 0 version, 1 the revision that made it, 2 the one that changed it, 3 value,
        /// 4 lease.
        target: i32 = [int32, tag = "2"],
        key: Bytes = [bytes = "bytes", tag = "3"],
        with: Option<compare::Target> = [oneof = "compare::Target", tags = "4, 6, 7, 8"],
    }

    struct TxnRequest {
        compare: Vec<Compare> = [message, repeated, tag = "1"],
        success: Vec<RequestOp> = [message, repeated, tag = "2"],
        failure: Vec<RequestOp> = [message, repeated, tag = "3"],
    }

    struct TxnResponse {
        header: Option<ResponseHeader> = [message, optional, tag = "1"],
        succeeded: bool = [bool, tag = "2"],
        responses: Vec<ResponseOp> = [message, repeated, tag = "3"],
    }

    struct CompactionRequest {
        revision: i64 = [int64, tag = "1"],
    }

    struct CompactionResponse {}

    struct WatchRequest {
        create: Option<WatchCreateRequest> = [message, optional, tag = "1"],
    }

    struct WatchCreateRequest {
        key: Bytes = [bytes = "bytes", tag = "1"],
        range_end: Bytes = [bytes = "bytes", tag = "2"],
        start_revision: i64 = [int64, tag = "3"],
        progress_notify: bool = [bool, tag = "4"],
    }

    struct WatchResponse {
        header: Option<ResponseHeader> = [message, optional, tag = "1"],
        created: bool = [bool, tag = "3"],
        canceled: bool = [bool, tag = "4"],
        compact_revision: i64 = [int64, tag = "5"],
        cancel_reason: String = [string, tag = "6"],
        events: Vec<Event> = [message, repeated, tag = "11"],
    }

    struct LeaseGrantRequest {
        /// In seconds.
        ttl: i64 = [int64, tag = "1"],
    }

    struct LeaseGrantResponse {
        id: i64 = [int64, tag = "2"],
        /// In seconds.
        ttl: i64 = [int64, tag = "3"],
        error: String = [string, tag = "4"],
    }

    struct LeaseRevokeRequest {
        id: i64 = [int64, tag = "1"],
    }

    struct LeaseRevokeResponse {}

    struct LeaseKeepAliveRequest {
        id: i64 = [int64, tag = "1"],
    }

    struct LeaseKeepAliveResponse {
        /// In seconds; 0 if there is no such lease.
        ttl: i64 = [int64, tag = "3"],
    }

    struct AuthenticateRequest {
        name: String = [string, tag = "1"],
        password: String = [string, tag = "2"],
    }

    struct AuthenticateResponse {
        token: String = [string, tag = "2"],
    }
}

/// [`Event::kind`] of a delete.
pub const DELETE: i32 = 1;

pub mod request_op {
    //! The kinds of steps.

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Request {
        #[prost(message, tag = "1")]
        Range(super::RangeRequest),
        #[prost(message, tag = "2")]
        Put(super::PutRequest),
        #[prost(message, tag = "3")]
        DeleteRange(super::DeleteRangeRequest),
    }
}

pub mod response_op {
    //! What the kinds of steps answer.

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Response {
        #[prost(message, tag = "1")]
        Range(super::RangeResponse),
        #[prost(message, tag = "2")]
        Put(super::PutResponse),
        #[prost(message, tag = "3")]
        DeleteRange(super::DeleteRangeResponse),
    }
}

/// [`Compare::result`].
pub const EQUAL: i32 = 0;
/// [`Compare::result`].
pub const GREATER: i32 = 1;

pub mod compare {
    //! What a key is compared with.

    use bytes::Bytes;

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Target {
        #[prost(int64, tag = "4")]
        Version(i64),
        #[prost(int64, tag = "6")]
        ModRevision(i64),
        #[prost(bytes = "bytes", tag = "7")]
        Value(Bytes),
        #[prost(int64, tag = "8")]
        Lease(i64),
    }

    impl Target {
        /// The number of this kind in [`super::Compare::target`].
        pub fn number(&self) -> i32 {
            match self {
                Self::Version(_) => 0,
                Self::ModRevision(_) => 2,
                Self::Value(_) => 3,
                Self::Lease(_) => 4,
            }
        }
    }
}
