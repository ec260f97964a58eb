//! What nodes have and say: cells, values, copies, recipes, messages. As in a node, what is dropped says so.

use std::cell::{Cell as Plain, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use wasmrun_model::id::{NodeId, ObjectId, ObjectName, TaskId};
use wasmrun_model::reference::{Keepers, Peers, Token};

pub fn node_id(at: usize) -> NodeId {
    NodeId::from_bytes([at as u8 + 1; 16])
}

pub fn at_of(node: NodeId) -> usize {
    usize::from(node.as_bytes()[0]) - 1
}

/// Why there is no value.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// Nobody has the object, or knows of it.
    Lost(ObjectName),
    /// Those who had it have it no more, and it cannot be reconstructed.
    Gone { id: ObjectId, had: Vec<NodeId> },
}

pub type Ended = Result<Rc<Value>, Failure>;

/// A process of a node: what it has in its store, and what is to be done because things were dropped.
#[derive(Debug)]
pub struct Home {
    pub node: NodeId,
    pub store: RefCell<BTreeMap<ObjectId, u32>>,
    pub todo: RefCell<Vec<Todo>>,
    /// Who is there, and what is kept for each.
    pub peers: RefCell<Peers<Loan, Rc<Value>>>,
    /// What is at other nodes, or was.
    pub remotes: RefCell<Vec<Weak<Value>>>,
    pub cells: Plain<usize>,
}

#[derive(Debug)]
pub enum Todo {
    Dropped(ObjectName, Token),
    Say(NodeId, Message),
}

impl Home {
    pub fn new(node: NodeId) -> Rc<Self> {
        Rc::new(Self {
            node,
            store: RefCell::default(),
            todo: RefCell::default(),
            peers: RefCell::default(),
            remotes: RefCell::default(),
            cells: Plain::new(0),
        })
    }

    pub fn has(&self, object: &ObjectId) -> bool {
        self.store.borrow().contains_key(object)
    }

    fn say(&self, to: NodeId, message: Message) {
        self.todo.borrow_mut().push(Todo::Say(to, message));
    }
}

/// An object that is there or will be, at one node.
#[derive(Debug)]
pub struct Cell {
    pub name: ObjectName,
    /// Of another node's.
    pub token: Option<Token>,
    pub ended: RefCell<Option<Ended>>,
    pub recipe: RefCell<Option<Rc<Recipe>>>,
    /// For the oracles: somebody on the way to its owner was lost, so it may be.
    pub is_broken: Plain<bool>,
    home: Rc<Home>,
}

impl Cell {
    pub fn new(home: &Rc<Home>, name: ObjectName, token: Option<Token>) -> Rc<Self> {
        home.cells.set(home.cells.get() + 1);
        Rc::new(Self {
            name,
            token,
            ended: RefCell::default(),
            recipe: RefCell::default(),
            is_broken: Plain::new(false),
            home: home.clone(),
        })
    }

    pub fn result(&self) -> Option<Ended> {
        self.ended.borrow().clone()
    }

    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }

    pub fn end(&self, result: Ended) {
        self.ended.borrow_mut().get_or_insert(result);
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.home.cells.set(self.home.cells.get() - 1);
        if let Some(token) = self.token {
            let mut todo = self.home.todo.borrow_mut();
            todo.push(Todo::Dropped(self.name, token));
        }
    }
}

/// What is kept for another node.
#[derive(Debug, Clone)]
pub struct Loan(pub Rc<Cell>);

impl PartialEq for Loan {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

/// Bytes in the store of a node, as long as this is there.
#[derive(Debug)]
pub struct Copy {
    id: ObjectId,
    home: Rc<Home>,
}

impl Copy {
    pub fn new(home: &Rc<Home>, id: ObjectId) -> Rc<Self> {
        *home.store.borrow_mut().entry(id).or_default() += 1;
        let home = home.clone();
        Rc::new(Self { id, home })
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let mut store = self.home.store.borrow_mut();
        let count = store.get_mut(&self.id).expect("it is there");
        *count -= 1;
        if *count == 0 {
            store.remove(&self.id);
        }
    }
}

#[derive(Debug)]
pub struct Value {
    pub bytes: Bytes,
    pub names: Vec<Rc<Cell>>,
}

#[derive(Debug)]
pub enum Bytes {
    Inline,
    Stored(ObjectId, Rc<Copy>),
    Remote(Remote),
}

#[derive(Debug)]
pub struct Remote {
    pub id: ObjectId,
    pub owner: NodeId,
    pub holders: RefCell<Vec<NodeId>>,
    /// If it is ours.
    pub keepers: RefCell<Keepers>,
    pub here: RefCell<Option<Rc<Copy>>>,
    pub origin: RefCell<Option<Rc<Recipe>>>,
    pub reconstructed: RefCell<Option<Rc<Value>>>,
    pub home: Rc<Home>,
}

impl Value {
    pub fn as_remote(&self) -> Option<&Remote> {
        match &self.bytes {
            Bytes::Remote(remote) => Some(remote),
            Bytes::Inline | Bytes::Stored(..) => None,
        }
    }

    pub fn is_inline(&self) -> bool {
        matches!(self.bytes, Bytes::Inline)
    }

    pub fn in_store(&self) -> Option<Rc<Copy>> {
        match &self.bytes {
            Bytes::Inline => None,
            Bytes::Stored(_, copy) => Some(copy.clone()),
            Bytes::Remote(remote) => remote.here.borrow().clone(),
        }
    }

    pub fn is_here(&self) -> bool {
        self.is_inline() || self.in_store().is_some()
    }
}

impl Remote {
    /// It was reconstructed.
    pub fn was_reconstructed(&self, value: Rc<Value>) {
        let now = value.as_remote().map(|it| it.holders.borrow().clone());
        self.holders.replace(now.unwrap_or_default());
        self.let_go();
        if value.as_remote().is_none() {
            self.here.replace(value.in_store());
        }
        self.reconstructed.replace(Some(value));
    }

    fn let_go(&self) {
        let peers = self.home.peers.borrow();
        for keeper in self.keepers.borrow_mut().let_go(&peers) {
            self.home.say(keeper, Message::Drop(self.id));
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.let_go();
        if self.owner != self.home.node && self.here.borrow().is_some() {
            let message = Message::Holding(self.id, false);
            self.home.say(self.owner, message);
        }
    }
}

/// What a task does.
#[derive(Debug, Clone, Copy)]
pub struct Does {
    /// What it makes does not go with messages.
    pub is_large: bool,
    /// It can be reconstructed.
    pub has_lineage: bool,
    /// It reads its arguments, so that their bytes have to come.
    pub reads: bool,
    /// How many tasks it starts, with some of its arguments.
    pub starts: usize,
    /// How deep that goes.
    pub depth: usize,
}

/// What a task was to do.
#[derive(Debug)]
pub struct Recipe {
    pub task: TaskId,
    pub args: Vec<Ingredient>,
    pub does: Does,
    pub attempt: Plain<u32>,
}

#[derive(Debug)]
pub enum Ingredient {
    Argument(Rc<Cell>),
    Result(Rc<Recipe>, Weak<Cell>),
}

impl Ingredient {
    pub fn of(argument: &Rc<Cell>) -> Self {
        let is_inline = matches!(argument.result(), Some(Ok(value)) if value.is_inline());
        match &*argument.recipe.borrow() {
            Some(recipe) if !is_inline => Self::Result(recipe.clone(), Rc::downgrade(argument)),
            _ => Self::Argument(argument.clone()),
        }
    }
}

impl Recipe {
    /// How to make what it is made of and what is not there any more.
    pub fn missing_inputs(&self) -> impl Iterator<Item = &Rc<Recipe>> {
        self.args.iter().filter_map(|arg| match arg {
            Ingredient::Result(before, cell) if cell.strong_count() == 0 => Some(before),
            _ => None,
        })
    }
}

/// What a message says of a value.
#[derive(Debug, Clone)]
pub struct Carried {
    pub body: Body,
    pub names: Vec<ObjectName>,
}

#[derive(Debug, Clone)]
pub enum Body {
    Inline,
    At {
        id: ObjectId,
        owner: NodeId,
        holders: Vec<NodeId>,
    },
}

pub type CarriedResult = Result<Carried, Failure>;

#[derive(Debug, Clone)]
pub enum Message {
    Place {
        task: TaskId,
        attempt: u32,
        args: Vec<(ObjectName, Option<CarriedResult>)>,
        does: Does,
    },
    Settled {
        task: TaskId,
        attempt: u32,
        result: CarriedResult,
    },
    Want(ObjectName),
    /// `None`: nobody has it.
    Made(ObjectName, Option<CarriedResult>),
    Release(ObjectName, u64),
    Holding(ObjectId, bool),
    Drop(ObjectId),
    Lend(ObjectName),
    Lent(ObjectName),
}

impl Message {
    /// The objects that are lent with it.
    pub fn lends(&self) -> Vec<ObjectName> {
        let of = |told: &CarriedResult| told.as_ref().map_or(Vec::new(), |it| it.names.clone());
        match self {
            Self::Place { args, .. } => {
                let along = args.iter().filter_map(|(_, told)| told.as_ref());
                let along = along.flat_map(of);
                args.iter().map(|(name, _)| *name).chain(along).collect()
            }
            Self::Settled { result, .. } => of(result),
            Self::Made(_, Some(told)) => of(told),
            Self::Lent(name) => vec![*name],
            Self::Made(_, None)
            | Self::Want(_)
            | Self::Release(..)
            | Self::Holding(..)
            | Self::Drop(_)
            | Self::Lend(_) => Vec::new(),
        }
    }
}
