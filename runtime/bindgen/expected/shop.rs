// What `shop.wit` exports, for drivers in Rust. Made by wasmrun-bindgen: do not edit.

use wasmrun_client::typed;

/// Functions and classes of the module, with their types.
const EXPORTS: &str = "
print func(what: record { type: string, price: s64, weight: option<f32>, sizes: list<u8>, care: flags { fragile, keep-cold } }) -> record { lines: list<string> }
example:shop/orders@1.2.0#price func(order: record { articles: list<record { type: string, price: s64, weight: option<f32>, sizes: list<u8>, care: flags { fragile, keep-cold } }>, tier: enum { guest, site-admin }, rows: list<object>, clerk: option<actor> }, delivery: variant { pickup, parcel(tuple<char, char>), at(result<tuple<u16>, string>) }) -> result<f64, string>
example:shop/orders@1.2.0#total func(prices: list<f64>, rows: object, clerk: actor) -> result
example:shop/orders@1.2.0#load func(name: string)
a#who func() -> bool
b#who func() -> bool
example:shop/orders@1.2.0#counter func(start: u64)
";

/// The module `shop.wit`, which a node has.
#[derive(Debug, Clone)]
pub struct Shop(typed::Module);

#[allow(dead_code, missing_docs, clippy::all)]
impl Shop {
    /// Gives the module to the node, and checks that it exports what is here.
    ///
    /// # Errors
    /// When the node cannot run it, or it exports something else.
    pub async fn load(client: &typed::Client, bytes: &[u8]) -> Result<Self, typed::Error> {
        let module = typed::Module::load(client, bytes, EXPORTS).await?;
        Ok(Self(module))
    }

    pub fn print(&self, what: impl Into<typed::Arg<stock::Article>>) -> typed::Call<Receipt> {
        let mut args = typed::Args::default();
        args.push(what.into());
        let name = "print";
        self.0.call(name, args)
    }

    /// Prices an order.
    ///
    /// The same order always has the same price.
    pub fn price(
        &self,
        order: impl Into<typed::Arg<orders::Order>>,
        delivery: impl Into<typed::Arg<stock::Delivery>>,
    ) -> typed::Call<Result<f64, String>> {
        let mut args = typed::Args::default();
        args.push(order.into());
        args.push(delivery.into());
        let name = "example:shop/orders@1.2.0#price";
        self.0.call(name, args)
    }

    pub fn total(
        &self,
        prices: impl Into<typed::Arg<Vec<f64>>>,
        rows: impl Into<typed::Object>,
        clerk: impl Into<typed::Arg<typed::ActorHandle>>,
    ) -> typed::Call<Result<(), ()>> {
        let mut args = typed::Args::default();
        args.push(prices.into());
        args.push_object(rows.into());
        args.push(clerk.into());
        let name = "example:shop/orders@1.2.0#total";
        self.0.call(name, args)
    }

    pub fn load_(&self, name_: impl Into<typed::Arg<String>>) -> typed::Call<()> {
        let mut args = typed::Args::default();
        args.push(name_.into());
        let name = "example:shop/orders@1.2.0#load";
        self.0.call(name, args)
    }

    pub fn a_who(&self) -> typed::Call<bool> {
        let name = "a#who";
        self.0.call(name, typed::Args::default())
    }

    pub fn b_who(&self) -> typed::Call<bool> {
        let name = "b#who";
        self.0.call(name, typed::Args::default())
    }
}

#[allow(dead_code, missing_docs, clippy::all)]
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Receipt {
    pub lines: Vec<String>,
}

impl typed::Value for Receipt {}

/// What is sold.
#[allow(dead_code, missing_docs, clippy::all)]
pub mod stock {
    use wasmrun_client::typed;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    pub enum Tier {
        Guest,
        SiteAdmin,
    }

    impl typed::Value for Tier {}

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
    pub struct Care {
        pub fragile: bool,
        pub keep_cold: bool,
    }

    impl typed::Value for Care {}

    /// An article.
    #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
    pub struct Article {
        /// As the label says.
        pub r#type: String,
        pub price: i64,
        pub weight: Option<f32>,
        pub sizes: Vec<u8>,
        pub care: Care,
    }

    impl typed::Value for Article {}

    #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
    pub enum Delivery {
        Pickup,
        /// To a country, by its two letters.
        Parcel((char, char)),
        At(Result<(u16,), String>),
    }

    impl typed::Value for Delivery {}
}

#[allow(dead_code, missing_docs, clippy::all)]
pub mod orders {
    use wasmrun_client::typed;

    #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
    pub struct Order {
        pub articles: Vec<super::stock::Article>,
        pub tier: super::stock::Tier,
        pub rows: Vec<typed::Object>,
        pub clerk: Option<typed::ActorHandle>,
    }

    impl typed::Value for Order {}

    /// Counts what is sold.
    #[derive(Debug, Clone)]
    pub struct Counter(typed::Instance);

    impl Counter {
        /// Creates an actor, when it is awaited.
        pub fn create(
            module: &super::Shop,
            start: impl Into<typed::Arg<u64>>,
        ) -> typed::Create<Self> {
            let mut args = typed::Args::default();
            args.push(start.into());
            module.0.create(args)
        }

        /// One more.
        pub async fn add(
            &self,
            article: impl Into<typed::Arg<super::stock::Article>>,
        ) -> Result<typed::Future<u64>, typed::Error> {
            let mut args = typed::Args::default();
            args.push(article.into());
            let name = "add";
            self.0.call(name, args).await
        }

        pub async fn create_(&self) -> Result<typed::Future<()>, typed::Error> {
            let name = "create";
            self.0.call(name, typed::Args::default()).await
        }

        /// The same actor, whose calls have these options.
        pub fn with(&self, options: typed::CallOptions) -> Self {
            Self(self.0.with(options))
        }

        /// The actor, to be passed on or killed.
        pub fn actor(&self) -> &typed::Actor {
            self.0.actor()
        }
    }

    impl typed::Class for Counter {
        const NAME: &'static str = "example:shop/orders@1.2.0#counter";
        const METHODS: &'static str = "
add func(article: record { type: string, price: s64, weight: option<f32>, sizes: list<u8>, care: flags { fragile, keep-cold } }) -> u64
create func()
";

        fn new(instance: typed::Instance) -> Self {
            Self(instance)
        }
    }
}

// Not here: example:shop/orders@1.2.0#later: its type has a future.
