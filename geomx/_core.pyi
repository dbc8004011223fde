"""
The compiled core of geomx: protocol, WAN model, live driver and native plugin parts.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray


HEADER_BYTES: int = 80

MAX_SHARD_ELEMENTS: int = 1073741824

WIRE_VERSION: int = 6

def build_info() -> dict[str, str]:
    """
    Return the options of this module's build, and the vector instructions in use.
    """

class Codec:
    """A handle of a codec."""

class Slicer:
    """A handle of a slicer."""

class Coordinator:
    """A handle of a coordinator."""

class OptimizerFactory:
    """A handle of a plugin's optimizer."""

class RoundPolicy:
    """A handle of the part of a sync policy that closes a server's rounds."""

class PartyPolicy:
    """A handle of a local server's part of a sync policy."""

def native_codec(name: str, options: Mapping[str, float]) -> Codec:
    """Return the compiled codec `name`; ValueError if there is none."""

def codec_by_size(bound: int, small: Sequence[Codec], large: Sequence[Codec]) -> Codec:
    """
    Return a codec that uses chain `large` for shards of at least `bound` elements, else `small`.
    """

def native_slicer(name: str, options: Mapping[str, float]) -> Slicer:
    """Return the compiled slicer `name`; ValueError if there is none."""

def native_policy(name: str, options: Mapping[str, float]) -> PartyPolicy:
    """Return the compiled party policy `name`; ValueError if there is none."""

def native_rounds(name: str, options: Mapping[str, float]) -> RoundPolicy:
    """Return the compiled round policy `name`; ValueError if there is none."""

def quorum_rounds(parties: int, deadline_s: float) -> RoundPolicy:
    """
    Return a round policy that closes a round that long after so many parties have contributed.
    """

def natives() -> dict[str, list[str]]:
    """Return the names of the compiled parts, by kind."""

class NodeConfig:
    """The configuration of a node; see core/node_config.h."""

    def __init__(self, id: int, name: str, role: str) -> None: ...

    def add_peer(self, id: int, name: str, role: str) -> None: ...

    def add_link(self, peer: int, direction: str, codecs: Sequence[Codec], slicers: Sequence[Slicer], grace_s: float = 0.0) -> None: ...

    def set_policy(self, policy: PartyPolicy) -> None: ...

    @overload
    def add_coordinator(self, number: int, name: str, options: Mapping[str, float]) -> None: ...

    @overload
    def add_coordinator(self, number: int, coordinator: Coordinator) -> None: ...

    @property
    def coordinated(self) -> dict[int, int]: ...

    @coordinated.setter
    def coordinated(self, arg: Mapping[int, int], /) -> None: ...

    def add_optimizer(self, optimizer: OptimizerFactory) -> None:
        """Add a plugin's optimizer, which instructions may name."""

    def add_group(self, root: int, members: Sequence[int], host: int, number: int, push: bool, pull: bool, ahead: bool = False, label: str = '') -> None:
        """
        Add an overlay of which this node is the root or a member; see core/overlay_group.h. `label`
        is used in errors.
        """

    def set_rounds(self, together: bool, staleness_bound: int | None, update_at_party: bool, steps_of: int = 0, workers_together: bool = True, moves: bool = False) -> None:
        """
        Set how rounds complete. `steps_of`: all workers, if parties exchange steps of the
        optimizer, or `moves` of parameters, and keep what is not sent; 0: they do not.
        """

    def set_round_policy(self, policy: RoundPolicy) -> None:
        """On a server: set when its rounds close, if `early_rounds`."""

    @property
    def parameter_scales(self) -> dict[int, float]:
        """
        On a local server with a round policy: the factors of workers that push parameters, by id.
        """

    @parameter_scales.setter
    def parameter_scales(self, arg: Mapping[int, float], /) -> None: ...

    @property
    def early_rounds(self) -> bool:
        """
        Whether rounds of some servers may close without members that are late.
        """

    @early_rounds.setter
    def early_rounds(self, arg: bool, /) -> None: ...

    @property
    def parents(self) -> list[int]: ...

    @parents.setter
    def parents(self, arg: Sequence[int], /) -> None: ...

    @property
    def children(self) -> list[int]: ...

    @children.setter
    def children(self, arg: Sequence[int], /) -> None: ...

    @property
    def master(self) -> int | None: ...

    @master.setter
    def master(self, arg: int | None, /) -> None: ...

    @property
    def open(self) -> bool: ...

    @open.setter
    def open(self, arg: bool, /) -> None: ...

    @property
    def standby(self) -> int | None:
        """On a global server: the node that stands by it."""

    @standby.setter
    def standby(self, arg: int | None, /) -> None: ...

    @property
    def standbys(self) -> list[tuple[int, int]]:
        """On the scheduler: (global server, its standby)."""

    @standbys.setter
    def standbys(self, arg: Sequence[tuple[int, int]], /) -> None: ...

    def set_tree(self, tree: Sequence[tuple[int, int]]) -> None:
        """
        On the scheduler: (parent, child) of all that are connected in the tree.
        """

    def declare(self, tensors: Sequence[Sequence[tuple[int, int, int, int]]]) -> None:
        """The shards of the experiment's tensors: no other is taken."""

    @property
    def scheduler(self) -> int | None: ...

    @scheduler.setter
    def scheduler(self, arg: int | None, /) -> None: ...

    @property
    def quorum(self) -> int: ...

    @quorum.setter
    def quorum(self, arg: int, /) -> None: ...

    @property
    def stands_for(self) -> dict[int, int]: ...

    @stands_for.setter
    def stands_for(self, arg: Mapping[int, int], /) -> None: ...

    @property
    def frame_bytes(self) -> int: ...

    @frame_bytes.setter
    def frame_bytes(self, arg: int, /) -> None: ...

    @property
    def most_early_bytes(self) -> int:
        """
        The most bytes of messages that are kept because they cannot be used yet.
        """

    @most_early_bytes.setter
    def most_early_bytes(self, arg: int, /) -> None: ...

    @property
    def bundle(self) -> int: ...

    @bundle.setter
    def bundle(self, arg: int, /) -> None: ...

    @property
    def borrow_values(self) -> bool: ...

    @borrow_values.setter
    def borrow_values(self, arg: bool, /) -> None: ...

    @property
    def phantom(self) -> bool: ...

    @phantom.setter
    def phantom(self, arg: bool, /) -> None: ...

    @property
    def continues(self) -> bool: ...

    @continues.setter
    def continues(self, arg: bool, /) -> None: ...

    @property
    def absent(self) -> list[int]: ...

    @absent.setter
    def absent(self, arg: Sequence[int], /) -> None: ...

    @property
    def experiment(self) -> str: ...

    @experiment.setter
    def experiment(self, arg: str, /) -> None: ...

    @property
    def id(self) -> int: ...

    @property
    def name(self) -> str: ...

    def set_device(self, device: str) -> None:
        """
        Set the device on which a server updates and encodes; ValueError if it does not exist.
        """

    def set_non_finite(self, rule: str) -> None:
        """
        Set the treatment of pushes that contain NaN or infinity: warn, refuse or ignore.
        """

    def set_heartbeat(self, interval_s: float, timeout_s: float) -> None: ...

    def party_rounds(self, rounds: int) -> int:
        """
        On a local server: the rounds of its party that lead to so many global ones.
        """

    def set_recovery(self, patience_s: float, redial_s: float) -> None:
        """
        Set the patience with silent peers (0: none), and the longest pause between reconnections.
        """

def non_finite_text(worker: str, key: str, round: int, what: str, refused: bool) -> str:
    """Return the message about a push that contains NaN or infinity."""

class Optimizer:
    """
    The optimizer of one tensor. `text` is its name, then one 'option value' per line; it may name
    an optimizer of the core or of `plugins`.
    """

    def __init__(self, text: str, key: int, plugins: Sequence[OptimizerFactory] = []) -> None: ...

    def update(self, weight: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], gradient: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], merge_count: int = 1, source: int = 0) -> None:
        """
        Update `weight` in place; both are float32 vectors of equal length. The gradient is the sum
        of `merge_count` workers, pushed by node `source`.
        """

    @property
    def scale_free(self) -> bool:
        """
        Whether the length of a step does not depend on the scale of the gradients.
        """

    def save(self) -> bytes:
        """
        Return the state on which later updates depend, besides options and weights.
        """

    def load(self, saved: bytes, elements: int) -> None:
        """
        Load a state that `save` returned of an optimizer of the same name, for a tensor of so many
        elements. RuntimeError if it is invalid; the object must not be used after that.
        """

def optimizers() -> list[str]: ...

def link_effects(codecs: Sequence[Codec], slicers: Sequence[Slicer], elements: int) -> tuple:
    """
    Return which of a link's codecs and slicers have an effect on a shard of `elements` elements, as
    two lists of bool in the order given.
    """

class CodecChain:
    """The chain of codecs of one shard on one link, with their state."""

    def __init__(self, codecs: Sequence[Codec], elements: int) -> None: ...

    @property
    def decodes_on_devices(self) -> bool:
        """Whether encoded values can be decoded on a device."""

    @property
    def on_devices(self) -> bool:
        """Whether all codecs can encode values on a GPU."""

    def layout(self, round: int = 1) -> tuple:
        """Return (rows, bytes) of an encoded value of that round."""

    def encode(self, values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], round: int = 1, rows: int = 0) -> list:
        """
        Encode; return a list of (first row, rows, payload), in slices of `rows` rows (0: one
        slice; else a multiple of 8, rounded up to whole chunks). ValueError if the value has another length.
        """

    def decode(self, payload: bytes, first_row: int, rows: int, total_rows: int, round: int = 1) -> object:
        """
        Return the dense vector of one slice, zero elsewhere. ValueError if the slice is invalid.
        """

    def add(self, payloads: Sequence[bytes], round: int = 1) -> bytes:
        """
        Return the encoded sum of payloads, one slice per sender, of a linear chain. ValueError if
        the chain is not linear.
        """

    def settle(self, payload: bytes, round: int = 1) -> None:
        """Pass the encoded sum of a round to the codecs of a linear chain."""

    @property
    def linear(self) -> bool: ...

    @property
    def survives_holes(self) -> bool: ...

def set_threads(threads: int) -> None:
    """
    Set the number of threads of this process for one large array, including the caller's.
    RuntimeError if the system cannot start more.
    """

def threads() -> int:
    """Return the number of threads, initially 1."""

def copied(array: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float32], dict(shape=(None,))]:
    """
    Return a copy of a float32 array, as a vector, whose memory is used again when it is released.
    """

def vector_levels() -> list[str]:
    """
    Return the vector instruction sets of this build that this machine supports, ascending.
    """

def vector_level() -> str:
    """
    Return the instruction set in use, initially the last of `vector_levels()`.
    """

def use_vector_level(name: str) -> None:
    """
    Set the instruction set, for tests and measurements, while no other thread uses the kernels.
    """

def devices() -> list[tuple[str, str]]:
    """
    Return (name, description) of every device with kernels in this build, the processor first.
    """

def time_device(device: str, elements: int, repeats: int) -> dict:
    """
    Return the seconds, by repeat, to copy `elements` float32 values "to_host" and "to_device",
    to cast them to half precision on the device ("encode"), and to apply an optimizer
    ("update"). ValueError if there is no such device.
    """

def describe_tensor(tensor: NDArray) -> tuple:
    """
    Return (device type, device number, address, shape, name of the type, strides in bytes) of a
    DLPack capsule, or of an object that supports DLPack.
    """

class StagedValue:
    """A tensor's values for Loop.push_value."""

class DeviceStaging:
    """
    Copies tensors of one device to the store and back.

    ValueError if there is no such device. Thread-safe. Pools of device memory and of pinned memory keep at
    most `most_kept` bytes each. Tensors are contiguous, of float32, float16 or bfloat16; streams are handles
    of CUDA.
    """

    def __init__(self, device: str, most_kept: int = 268435456) -> None: ...

    @property
    def device(self) -> str: ...

    @property
    def stream(self) -> int:
        """The stage's stream, for DLPack."""

    @property
    def kept(self) -> int:
        """Bytes of pinned memory in the pool."""

    def after(self, producer: int) -> None:
        """
        Let later operations wait for the operations of stream `producer` so far.
        """

    def fetch(self, address: int, type: str, out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]) -> None:
        """Copy a tensor's values into a float32 vector of equal length."""

    def fill(self, values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')], address: int, type: str, owner: object, consumer: int | None = None) -> None:
        """
        Copy float32 values into a tensor, which `owner` keeps alive. The stream `consumer` waits
        for the copy; without one, the caller waits.
        """

    def fill_from(self, loop: Loop, key: int, address: int, type: str, elements: int, owner: object, consumer: int | None = None) -> None:
        """
        Copy a worker's last complete value into a tensor, as `fill`. Values of later rounds are
        copied encoded if the device can decode them.
        """

    def take(self, address: int, type: str, elements: int, owner: object, copy: bool, producer: int | None = None) -> StagedValue:
        """
        Take the values of a tensor, which `owner` keeps alive. With `copy`, the tensor may be
        changed afterwards, by operations of stream `producer` or, without one, by any.
        """

    def take_sum(self, terms: Sequence[tuple[DeviceStaging, int, str, object, int | None]], elements: int) -> StagedValue:
        """
        Take the sum of tensors, in the given order, which may be changed afterwards. Each is
        (stage of its device, address, type, owner, producer or None).
        """

class BandwidthSchedule:
    """
    The bandwidth of an edge over time, from the start of the run on.

    Made of a bandwidth in bytes/s, and then what changes it; each setter raises ValueError for what
    makes no sense, or would leave the edge down for ever.
    """

    def __init__(self, bytes_per_s: float = float('inf')) -> None: ...

    def set_trace(self, changes: Sequence[tuple[float, float]]) -> None:
        """Set the bandwidth from each time on: (seconds, bytes/s)."""

    def set_redraw(self, every_s: float, low: float, high: float, stream: int) -> None:
        """Draw the bandwidth periodically, uniformly between two bounds."""

    def add_outage(self, start_s: float, end_s: float, every_s: float = 0.0) -> None:
        """Add an outage, which repeats if every_s is above 0."""

    def add_failures(self, mean_up_s: float, mean_down_s: float, stream: int) -> None:
        """Add alternating up and down times, exponentially distributed."""

    def at(self, time_s: float) -> float:
        """Return the bandwidth at a time, in bytes/s."""

    def next(self, time_s: float) -> float | None:
        """
        Return the first time after `time_s` at which it may change; None if there is none.
        """

    def finish(self, from_s: float, bytes: float) -> float:
        """Return when that many bytes have passed; infinite if never."""

    def carries(self, end_s: float) -> float:
        """
        Return the bytes that can pass until `end_s`; infinite without a limit.
        """

class LinkModel:
    """
    One direction between two nodes, for Fabric and Shape.

    Edges of the way there and back by id; the congestion control, the number of TCP streams and the
    window of each; payload bytes per byte; loss per packet; round trip, jitter and queue in
    nanoseconds (no queue: no datagram is dropped for being late); what routers do with datagrams:
    priority (serve them last) or fifo; its share of an edge, and the classes of its reliable lane and of
    datagrams, lower ones of which go first; bytes of acknowledgements on the way back per byte of TCP.
    """

    def __init__(self, path: Sequence[int], reverse: Sequence[int], congestion: str = 'bbr', streams: int = 1, window_limit: float = 2750000.0, efficiency: float = 0.9653333333333334, loss: float = 0.0, rtt_ns: int = 0, jitter_ns: int = 0, queue_ns: int | None = None, queueing: str = 'priority', weight: float = 1.0, priority_class: int = 0, datagram_class: int = 1, ack_share: float = 0.0) -> None: ...

def fluid_transfers(model: str, schedules: Sequence[BandwidthSchedule], delays_s: Sequence[float], paths: Sequence[Sequence[int]], reverses: Sequence[Sequence[int]], losses: Sequence[float], route: Sequence[int], bytes: Sequence[float], starts_s: Sequence[float]) -> list[float]:
    """
    Return the finish times in seconds under a fluid model (maxmin, CM02, LV08).
    """

def tcp_transfers(congestion: str, streams: int, window_bytes: float, efficiency: float, reverse_share: float, new_connections: bool, fifo: bool, schedules: Sequence[BandwidthSchedule], delays_s: Sequence[float], paths: Sequence[Sequence[int]], reverses: Sequence[Sequence[int]], losses: Sequence[float], route: Sequence[int], bytes: Sequence[float], starts_s: Sequence[float]) -> list[float]:
    """Return the finish times in seconds under the TCP model."""

class FlowNetwork:
    """
    The fluid model of connections over shared edges; times are integer nanoseconds.
    """

    def __init__(self, fifo: bool = False) -> None: ...

    def add_edge(self, bytes_per_s: float, delay_ns: int = 0) -> int: ...

    def add_connection(self, path: Sequence[int], reverse: Sequence[int] = [], reverse_share: float = 0.0, weight: float = 1.0, priority_class: int = 0, efficiency: float = 0.9653333333333334, rtt_ns: int = 0, congestion: str = 'bbr', window_bytes: float = 2750000.0) -> int: ...

    def start(self, connection: int, bytes: float, now_ns: int) -> None: ...

    def set_capacity(self, edge: int, bytes_per_s: float, now_ns: int) -> None: ...

    def next_event(self) -> object:
        """
        Return the time of the next event in nanoseconds; None if there is none.
        """

    def advance(self, now_ns: int) -> list[int]:
        """
        Return the connections whose messages were sent completely at `now_ns`.
        """

    def rate(self, connection: int) -> float:
        """Return the payload bytes/s of a connection."""

    def load(self, edge: int) -> float:
        """Return the load of an edge in bytes/s."""

    def capacity(self, edge: int) -> float: ...

    def delay(self, connection: int) -> int:
        """Return the one-way delay in nanoseconds."""

    def window(self, connection: int) -> float: ...

    @property
    def solves(self) -> int: ...

class Pace:
    """The durations of a worker's forward and backward passes, by layer."""

    def __init__(self, forward_ns: Sequence[int], backward_ns: Sequence[int]) -> None: ...

class PassClock:
    """
    The passes of a worker over its layers, on the clock of a nominal pace: the rules by which
    simulated workers wait and push, with arrivals that were measured. Times are nanoseconds.
    At time 0 all keys' initial values are awaited.
    """

    def __init__(self, layer_of_key: Sequence[int], pace: Pace) -> None: ...

    def forward(self, now_ns: int, needs: Sequence[int] = []) -> None:
        """
        Begin a forward pass, which waits for the answers to `needs` too; `arrived` completes it.
        """

    def backward(self, push: str, last: bool, reports: bool, now_ns: int, part: tuple[Sequence[int], Sequence[int]] | None = None) -> list[tuple[int, int]]:
        """
        Begin a backward pass and the wait for the next step; return (key, ns) of its pushes, in
        order. `arrived` completes it. part: (pushed keys, keys whose answers the next step needs);
        None: all, and these.
        """

    def stretch(self, times: float) -> None:
        """
        From the next layer on, computing takes `times` as long as the pace says.
        """

    def slow(self, start_ns: int, end_ns: int, times: float) -> None:
        """
        Computing that begins then takes `times` as long as that; several such events multiply. They
        are told before the pass in which they are.
        """

    def times(self, at_ns: int) -> float:
        """
        Return how many times as long as the pace says a layer takes that begins then.
        """

    def pause(self, start_ns: int, end_ns: int) -> None:
        """
        The process is stopped then, and its computation continues afterwards. Pauses are told in
        order, each before the pass in which it is.
        """

    def awaited(self) -> list[int]:
        """Return the keys whose values are needed to complete the pass."""

    def arrived(self, values: Sequence[tuple[int, int, int]], reply_ns: int = -1) -> int:
        """
        Complete the pass, given (ns, key, round) of all awaited values, and the time of a reply.
        Returns the time at which the pass was complete.
        """

    @property
    def now_ns(self) -> int:
        """
        The time up to which the pass is complete; after `backward`, the end of the pass.
        """

    def take_spans(self) -> list:
        """
        ("forward", "backward" or "wait", about, start ns, end ns) since this was last asked;
        about is the key and the round that ended a wait.
        """

class Costs:
    """
    Execution times of an endpoint: seconds per message and per byte, by kind of work.
    """

    def __init__(self) -> None: ...

    def set(self, work: str, per_message_s: float, per_byte_s: float) -> None: ...

class TrainingPlan:
    """The layers and tensors that all workers train."""

    def __init__(self, layers: int, tensors: Sequence[tuple[int, int, Sequence[tuple[int, int, int, int]]]]) -> None:
        """
        The number of layers; (elements, layer, [(offset, elements, server, priority)]) by key.
        """

class TransferModel:
    """
    The way of a transfer and its TCP, its weight and class, and its pace: bytes/s on the edges;
    infinite for TCP's own. A lower class goes first; training is class 0.
    """

    def __init__(self, link: LinkModel, weight: float = 1.0, priority_class: int = 0, pace: float = float('inf')) -> None: ...

class Fabric:
    """All nodes of an experiment over the fluid WAN, in virtual time."""

    def __init__(self, seed: int, max_spans: int = 0, fifo: bool = False) -> None: ...

    def add_edge(self, schedule: BandwidthSchedule, delay_ns: int) -> int: ...

    def add_node(self, config: NodeConfig, costs: Costs) -> None: ...

    def share_cores(self, count: int) -> None:
        """Let all nodes share this number of cores; 0: each has its own."""

    def connect(self, source: int, target: int, link: LinkModel) -> None:
        """Add the link from `source` to `target`."""

    def advance(self, limit_ns: int) -> int: ...

    def take_notices(self) -> list:
        """
        Return and clear the notices for Python: (node, kind, key, round, text, reason, values,
        partial); partial, in notices of that kind, is (shard, workers, global round, late, dropped) of a
        round without some nodes, or with contributions that were late: (node, round that it was
        pushed for), the last `dropped` of which do not count. text is bytes in notices of kind state.
        """

    def expect_faults(self) -> None:
        """
        Enable faults of connections; to be called after building and before running.
        """

    def cut(self, one: int, other: int, now_ns: int) -> int:
        """
        Drop all messages between two nodes, also those in flight, until `heal`. Cuts add up.

        Returns:
            How often the connection has broken, while messages waited, since one arrived.
        """

    def heal(self, one: int, other: int, now_ns: int) -> None:
        """End one `cut`, with a new connection."""

    def reconnect(self, one: int, other: int, now_ns: int) -> None:
        """End one `cut`, with the old connection."""

    def pause(self, node: int, duration_ns: int, now_ns: int) -> None:
        """
        Pause a node: it does not compute, handle messages or fire timers for this time.
        """

    def reset(self, one: int, other: int, now_ns: int) -> int:
        """
        Break the connection between two nodes; messages in flight are lost and sent again.

        Returns:
            What `cut` returns.
        """

    def kill(self, node: int, reason: str, now_ns: int) -> None:
        """Kill a node's process; the scheduler receives the reason."""

    def restart(self, config: NodeConfig, now_ns: int) -> None:
        """
        Start a new process of a killed node; a worker needs another call of `train`.
        """

    def stand_by(self, config: NodeConfig, standby: int) -> None:
        """
        Let a node of the role standby repeat what the global server of `config` does, and take its place when it is lost.
        """

    def detour(self, source: int, target: int, link: LinkModel) -> None:
        """
        Set the path of a link once the standby of one of its ends has taken that end's place.
        """

    def leave(self, worker: int, now_ns: int) -> None:
        """Let a worker leave the run."""

    def round(self, node: int, key: int) -> int:
        """Return the round of a worker's last complete value of a tensor."""

    def reached(self, node: int, key: int) -> int:
        """Return the rounds that other parties have completed by that value."""

    def report_values(self, report: bool) -> None:
        """Set whether every new value at a worker creates a notice."""

    def run_optimizer(self, node: int, optimizer: str, unless_given: bool, now_ns: int) -> None:
        """Have all global servers run an optimizer. See Loop.run_optimizer."""

    def train(self, node: int, plan: TrainingPlan, pace: Pace) -> None:
        """Let the fabric execute a worker's training loop."""

    def start(self, node: int, master: bool, initial: Sequence[Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]] | None, now_ns: int) -> None:
        """
        Declare and request all tensors; the master also initialises them. Ends with "ready".
        """

    def forward(self, node: int, now_ns: int, needs: Sequence[int] = []) -> None:
        """
        Begin a forward pass, which waits for the answers to `needs` too. Ends with "forward".
        """

    def backward(self, node: int, push: str, values: Sequence[Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]] | None, loss: float, last: bool, report: tuple[int, int, Sequence[float]] | None, now_ns: int, part: tuple[Sequence[int], Sequence[int]] | None = None) -> None:
        """
        Begin a backward pass that pushes "nothing", or each layer's "gradients" or "parameters" after it. Ends with "ready", when the next step can begin.
        part: (keys that are pushed, whose values these are; keys whose answers the next step needs); None: all, and these.
        """

    def recurs(self, now_ns: int) -> bool | None:
        """
        Return whether the state equals the marked one; None without a mark, or if unknown.
        """

    def mark(self, now_ns: int) -> None:
        """Mark the state of the last call of `recurs`."""

    def repeat(self, times: int, now_ns: int) -> None:
        """Count everything since the mark `times` more times."""

    def value(self, node: int, key: int) -> object:
        """Return a copy of the last complete value of a tensor at a worker."""

    def awaits_reply(self, node: int) -> bool:
        """Return whether a worker waits for a coordinator's reply."""

    def waits(self, node: int) -> list[tuple[int, int, int, list[int]]]:
        """
        Return the values for which a worker or a server waits, grouped by awaited nodes:
        (first key, round, number of keys, nodes); round 0 is the initial value.
        """

    def orders_due(self, node: int) -> list[int]:
        """
        Return the coordinators on a node without whose orders an overlay can do nothing.
        """

    def links(self) -> list:
        """
        Return (source, target, push, pull, control bytes, busy ns) per directed link; push and
        pull are (bytes, messages).
        """

    def worked(self) -> list[int]:
        """
        Return the time that each node has spent on messages, in nanoseconds, by id.
        """

    def edges_busy(self) -> list[int]:
        """
        Return the time in which each edge had messages in flight, in nanoseconds, by id.
        """

    def spans(self) -> list:
        """
        Return (node, peer, category, kind of the message, about, start ns, end ns) of each span;
        about contains key, shard, round, bytes and channel.
        """

    def node_stats(self, node: int) -> dict: ...

    @property
    def spans_dropped(self) -> int: ...

    @property
    def messages(self) -> int: ...

    @property
    def idle(self) -> bool:
        """
        Whether no event is scheduled at any time, nor a change of a bandwidth that something waits for.
        """

    @property
    def events(self) -> int: ...

    @property
    def lost_messages(self) -> int: ...

    @property
    def solves(self) -> int: ...

    def set_capacity(self, edge: int, bytes_per_s: float, now_ns: int) -> None:
        """Set an edge's bandwidth from now on; its schedule ends."""

    def set_edge_up(self, edge: int, up: bool, now_ns: int) -> None:
        """
        Let nothing pass an edge, or what could by now had it been up; its schedule goes on.
        """

    def set_delay(self, edge: int, delay_ns: int) -> None:
        """
        Set an edge's delay, for links and transfers that are added or changed from now on.
        """

    def change_link(self, source: int, target: int, link: LinkModel, now_ns: int) -> None:
        """
        Change the way of messages that leave from now on, its delay or its loss.
        """

    def start_transfer(self, transfer: TransferModel, bytes: float, now_ns: int) -> int:
        """
        Send bytes over a connection of their own; ends with "transferred". Returns its number.
        """

    def change_transfer(self, id: int, transfer: TransferModel, now_ns: int) -> None: ...

    def cancel_transfer(self, id: int, now_ns: int) -> float:
        """Give a transfer up; return the bytes that have left."""

    def transfer_left(self, id: int, now_ns: int) -> float:
        """Return the bytes of a transfer that have not left."""

    def transfer_rate(self, id: int) -> float:
        """Return a transfer's payload bytes/s."""

    def stretch(self, node: int, computing: float, work: float) -> None:
        """
        Let a node's computing and its work on messages take multiples of their times.
        """

    def load(self, edge: int) -> float:
        """Return the bytes/s on an edge."""

    def capacity(self, edge: int, now_ns: int) -> float:
        """Return an edge's bandwidth in bytes/s."""

    def edges_queued(self, now_ns: int) -> list[float]:
        """Return the bytes that senders hold for each edge, by id."""

    def flows(self, now_ns: int) -> list:
        """
        Return (whether a transfer, source, target, transfer, reliable, payload bytes/s, payload bytes
        left) of each message and transfer under way.
        """

    def edges_carried(self, now_ns: int) -> list[tuple[float, float]]:
        """
        Return the bytes that have been sent over each edge, by id: of training and transfers, and of
        control traffic.
        """

class FabricModel:
    """
    A fabric that leaves its network to a model in Python. To be made before the fabric is built.
    """

    def __init__(self, fabric: Fabric) -> None: ...

    def take_calls(self) -> list[tuple[str, int, float]]:
        """
        Return and clear what has happened: (kind, number of an edge or a connection, bytes); kind is
        edge, changed, new, start or cancelled.
        """

    def edge(self, edge: int) -> tuple[float, int]:
        """Return an edge's bytes/s and its delay in nanoseconds."""

    def connection(self, connection: int) -> tuple:
        """
        Return (kind, nodes at its ends, edges, edges back, round trip in ns, efficiency, weight,
        class, congestion control, first window, largest window, rate limit, bytes of acknowledgements per
        byte); a transfer has no nodes.
        """

    def left(self, connection: int, arrives: bool, lost: bool, now_ns: int) -> None:
        """Let the last byte of a connection's message have left."""

    def arrived(self, connection: int, now_ns: int) -> None:
        """Let a message arrive that has left with arrives=False."""

    def set_rate(self, connection: int, bytes_per_s: float, now_ns: int) -> None:
        """Note the present rate of a message."""

class PushedValues:
    """A copy of float32 values, which several workers may push."""

    def __init__(self, array: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class FabricWorker:
    """
    The verbs of a simulated worker, called at their virtual times. What they lead to are notices of
    the fabric: value, reply, released, state.
    """

    def __init__(self, fabric: Fabric, node: int) -> None: ...

    def declare(self, key: int, elements: int, shards: Sequence[tuple[int, int, int, int]], name: str = '') -> None:
        """
        Declare a tensor and its shards: (offset, elements, global server, priority). All workers must call it `name`, unless that is empty.
        """

    def init(self, key: int, array: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], now_ns: int) -> None:
        """Set the initial value of a tensor for all nodes."""

    def request(self, key: int, now_ns: int) -> None:
        """Request the current value, which completes its round."""

    def push(self, key: int, values: PushedValues, loss: float, last: bool, absent: bool, now_ns: int) -> int:
        """Contribute to the next round; return the round. See Loop.push."""

    def barrier(self, now_ns: int) -> None:
        """Come to the next barrier."""

    def run_optimizer(self, optimizer: str, unless_given: bool, now_ns: int) -> None:
        """Have all global servers run an optimizer. See Loop.run_optimizer."""

    def expect_optimizer(self, now_ns: int) -> None:
        """See Loop.expect_optimizer."""

    def report(self, host: int, number: int, values: Sequence[float], now_ns: int) -> None:
        """
        Send numbers to the coordinator `number` on node `host`, after all earlier pushes.
        """

    def ask_states(self, now_ns: int) -> None:
        """Ask all global servers for the state of their optimizers."""

    def load_state(self, key: int, shard: int, saved: bytes, now_ns: int) -> None:
        """
        Have the optimizer of a shard continue from a state, before later pushes.
        """

    def value(self, key: int, out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """Copy the last complete value into a float32 array."""

    def absent(self, key: int) -> bool:
        """Return whether no worker contributed to the last complete value."""

    def reached(self, key: int) -> int:
        """
        Return the rounds that other parties have completed by the last complete value.
        """

    def round(self, key: int) -> int:
        """Return the round of the last complete value; 0 before the first push."""

def state_part(text: bytes) -> tuple[int, int, int, int, bytes]:
    """
    Read the text of a notice of kind state: (key, shard, part, parts, bytes).
    """

def why_no_namespaces() -> str:
    """
    Return the reason why network namespaces cannot be created here; empty if they can.
    """

def enter_namespace(fd: int) -> None:
    """
    Move the calling thread, and its later children, to the namespace of descriptor `fd`.
    """

class Router:
    """
    Network namespaces, joined by emulated links.

    Sites, edges and routes first, then start(). IPv4 addresses are numbers. Whatever it made is gone when
    it is, or its process.
    """

    def __init__(self, seed: int) -> None: ...

    def add_site(self, addresses: Sequence[int], settings: Mapping[str, str]) -> int:
        """
        Create a namespace with these addresses and these settings below /proc/sys/net; return its descriptor. RuntimeError if that is not permitted.
        """

    def add_edge(self, schedule: BandwidthSchedule, delay_ns: int, jitter_ns: int, loss: float, queue_bytes: int) -> int:
        """Add one direction of a link; return its id. Loss is per packet."""

    def add_route(self, source: int, target: int, edges: Sequence[int]) -> None:
        """Set the route of packets between two addresses."""

    def start(self) -> None:
        """Forward packets on a separate thread."""

    def set_origin(self, monotonic_s: float) -> None:
        """Set the start of the run, from which the schedules of bandwidth count."""

    def set(self, edge: int, delay_ns: int | None, loss: float | None) -> None:
        """Change an edge's delay and loss from now on; what is None stays."""

    def stop(self) -> None:
        """End the thread."""

    def counts(self) -> dict:
        """
        Return the packets by outcome, how long a delivered one waited in queues on average, and the largest lateness of a packet; after stop().
        """

def python_codec(prototype: object, label: str = '') -> Codec:
    """
    Return a handle of a codec in Python (geomx.plugin.Codec). `label` is used in errors.
    """

def python_costs() -> dict[str, tuple[int, float, float]]:
    """
    Return the costs of calls of plugins' Python objects in this process, by label: number of calls,
    seconds in Python, seconds of waiting for the interpreter lock.
    """

def python_calls() -> list[tuple[str, float, int, int]]:
    """
    Return the current calls of plugins' Python objects: (label: method, seconds so far, thread id
    as of `threading.get_ident`, number of the call).
    """

def python_policy(prototype: object, label: str = '') -> PartyPolicy:
    """
    Return a handle of a party policy in Python (geomx.plugin.PartySync or PartyModel).
    """

def python_coordinator(prototype: object, seed: float, label: str = '') -> Coordinator:
    """
    Return a handle of a coordinator in Python (geomx.plugin.Coordinator), with its seed.
    """

def python_optimizer(name: str, prototype: object, label: str = '') -> OptimizerFactory:
    """
    Return a handle of an optimizer in Python (geomx.plugin.Optimizer), with the name by which instructions select it.
    """

def read_overlay_report(numbers: Sequence[float]) -> tuple:
    """
    Read a member's report; return the fields of geomx.plugin.OverlayReport.
    """

def overlay_order(direction: str, root: int, key: int, shard: int, round: int, target: int) -> list[float]:
    """
    Return an order to send the contribution (push) or the value (pull) to `target`, as numbers.
    """

def python_rounds(prototype: object, label: str = '') -> RoundPolicy:
    """
    Return a handle of a round policy in Python (geomx.plugin.RoundPolicy).
    """

def python_slicer(prototype: object, label: str = '') -> Slicer:
    """
    Return a handle of a slicer in Python (geomx.plugin.Slicer). `label` is used in errors.
    """

CODEC_ABI: int = 2

def library_codec(path: str, options: Mapping[str, float], label: str) -> Codec:
    """
    Load the codec in a shared library; ValueError if that fails. `label` is used in errors.
    """

def watch_exit() -> None:
    """Let `exit_status` tell of the end of the program from now on."""

def exit_status() -> int:
    """
    Return the exit status of a program that ends by SystemExit, once it does; 0 before.
    """

def exit_text() -> str:
    """
    Return what such a program has given in place of a status, as text; empty: nothing.
    """

class Journal:
    """
    The file from which another process can resume a node.

    RuntimeError if it cannot be had, another process has it open, or it is damaged.
    """

    def __init__(self, path: str) -> None: ...

    @property
    def path(self) -> str: ...

    @property
    def begun(self) -> bool:
        """Whether it contains a node to resume."""

    @property
    def cut(self) -> bool:
        """Whether it begins with a snapshot of its node."""

    @property
    def experiment(self) -> str:
        """The experiment's text from the scheduler."""

    @property
    def roster(self) -> dict[str, str]:
        """Addresses by name, including the scheduler's."""

    @property
    def port(self) -> int:
        """The port of the node."""

    def keep(self, log_mb: float, synced: bool) -> None:
        """
        Set the megabytes by which the file may grow before a snapshot replaces it, and whether records are forced to the disk.
        """

    def last_s(self) -> float:
        """
        Read all records; return the latest time of them, in seconds of the run's clock.
        """

def note(loop: Loop, text: str, state: Sequence[bytes]) -> None:
    """
    Record the progress and the state of this worker's application, if there is a journal.
    """

def resumed(loop: Loop) -> tuple[list[str], list[bytes], dict[int, int], dict[int, Annotated[NDArray[numpy.float32], dict(shape=(None,))]]] | None:
    """
    Return the progress of the killed process' application: (its notes, the state of the latest one, and the rounds and values of keys at that time); None without notes. Declare all tensors before, and repeat the calls after the note; those that were made have no effect.
    """

def reopened(loop: Loop, config: NodeConfig, journal: Journal) -> list[tuple[int, int, int, Annotated[NDArray[numpy.float32], dict(shape=(None,))] | None, bytes]]:
    """
    Return what a server holds of every shard, by its journal, without running it: (key, shard, round, value or None, state of the optimizer).
    """

def set_clock_ahead(seconds: float) -> None:
    """
    Set the seconds by which the run's clock is ahead of time.monotonic(); before any loop exists.
    """

def clock_s() -> float:
    """Return the time of the run's clock in seconds."""

def ask_states(loop: Loop) -> None:
    """Ask all global servers for the state of their optimizers."""

def wait_state(loop: Loop, timeout_s: float) -> tuple[int, int, int, int, bytes] | None:
    """
    The next part that has arrived: (key, shard, part, parts, bytes); None when time is up.
    """

def load_state(loop: Loop, key: int, shard: int, saved: bytes) -> None:
    """
    Have the optimizer of a shard continue from a state, before later pushes.
    """

def notice_line(json: bool, warning: bool, node: str, text: str) -> str:
    """Return a line of the log as loops write it."""

def write_json(json: bool) -> None:
    """Choose the form of all later lines of this process's loops."""

def send_notices(descriptor: int) -> None:
    """
    Write lines for the user to this file descriptor instead of standard error.
    """

TAKEN_FOR_LOST: str = 'it was declared lost: '

BROKE_PROTOCOL: str = 'broke the protocol: '

class Shape:
    """
    How an emulated network treats one node's messages.

    Edges are this node's own copies of those on its outgoing paths. An edge that others send over too
    has a row in `usage_file`, where each of `slots` nodes writes into a slot of its own. An edge's
    bandwidth is a BandwidthSchedule, or a constant in bytes/s.
    """

    def __init__(self, seed: int = 0, usage_file: str = '', slots: int = 1, slot: int = 0) -> None: ...

    @staticmethod
    def usage_file_bytes(rows: int, slots: int) -> int:
        """Return the size of that file, which must be filled with zeros."""

    def add_edge(self, schedule: BandwidthSchedule, delay_ns: int) -> int:
        """Add an edge of outgoing paths; return its id."""

    def add_path(self, target: int, link: LinkModel) -> None:
        """Add the link to `target`; see Fabric.connect."""

    def share(self, edge: int, row: int) -> None:
        """Share `edge` with other nodes, by this row of the usage file."""

class Loop:
    """
    A live node: its port, its connections, and the thread that serves them.

    Thread-safe. Once a node of the run is lost, every wait raises RuntimeError("node NAME was lost:
    REASON"), and failure() says the same; TimeoutError means that time was up.
    """

    def __init__(self, host: str = '127.0.0.1', port: int = 0, token: str = '', tls: tuple[str, str, str] | None = None, insecure: bool = False) -> None:
        """
        Bind TCP and UDP to one port (0: any). RuntimeError if that fails, or if the token is empty. `tls`: PEM files of the authority, the certificate and its key, with which all traffic is encrypted. Without them, only loopback addresses are allowed, unless `insecure`.
        """

    @property
    def address(self) -> str:
        """The address host:port of this node for others."""

    def join(self, scheduler: str, name: str, id: int | None, timeout_s: float, late: bool = False) -> tuple[str, dict[str, str]]:
        """
        Join the run whose scheduler is at host:port; return (experiment, addresses by name). Without an id, the scheduler finds the node by its name. `late`: join only if the run has started.
        """

    def run(self, config: NodeConfig, roster: Mapping[str, str], shape: Shape | None, congestion: str = 'bbr', journal: Journal | None = None) -> None:
        """
        Run the node of `config` and connect to its peers: over emulated links with `shape`, else with this congestion control, if the kernel has it. With a `journal`, the node is recorded, or resumed if the journal contains one.
        """

    def announce(self, other: Loop) -> None:
        """Tell its address."""

    def stand_by(self, config: NodeConfig, roster: Mapping[str, str], shape: Shape | None, congestion: str, member: Loop) -> None:
        """Repeat a server by the records of a standby, `member`."""

    @property
    def in_charge(self) -> bool:
        """Whether this loop, which has stood by, has taken over."""

    @property
    def waits(self) -> bool:
        """
        Whether a thread of the application waits: for a value, a reply, a barrier, the start or the end.
        """

    @property
    def order_due(self) -> int:
        """
        The coordinator on this node for whose order an overlay waits longer than the failure timeout;
        -1: none.
        """

    @property
    def initial_due(self) -> int:
        """
        The key whose initial value this global server has awaited longer than the failure timeout; -1: none.
        """

    @property
    def settled(self) -> bool:
        """
        Whether all messages of this node had left, and were received, when it last looked at its waits.
        """

    def wait_started(self, timeout_s: float) -> float:
        """
        Wait until all nodes are connected; return that time, the start of the run, of clock_s().
        """

    def cut(self, peer: int) -> None:
        """Stop all communication with a peer until `heal`. Cuts add up."""

    def heal(self, peer: int) -> None:
        """End one `cut`."""

    def reset(self, peer: int) -> None:
        """Break the connection with a peer."""

    def leave(self) -> None:
        """Leave the run, which stops when all workers have left."""

    def wait_stopped(self, timeout_s: float) -> bool:
        """Wait for the end of the run; return whether it stopped in time."""

    def failure(self) -> tuple[str, str] | None:
        """Return (name, reason) of the lost node; None if there is none."""

    def refusals(self) -> list[str]:
        """
        Return the callers refused since the last call, with reasons; at most a hundred per run.
        """

    @property
    def roster(self) -> dict[str, str]:
        """The scheduler's: addresses of the members that have joined, by name."""

    @property
    def late(self) -> bool:
        """
        Whether this process replaces a lost one of this node while training continues.
        """

    def report_ended(self, name: str, reason: str) -> None:
        """
        Report to the scheduler, which this node must be, that the process of a member has ended.
        """

    def members(self) -> list:
        """
        Return notices of participation since the last call: (monotonic s, kind, names, key, shard, round, global round, workers, late, dropped); kinds: gone, back, moved, takes_part, partial.
        """

    def close(self, failed: str = '') -> None:
        """
        End the thread and all connections. May be called repeatedly. `failed`: the error of this process, in one line, for its peers; empty for none.
        """

    def declare(self, key: int, elements: int, shards: Sequence[tuple[int, int, int, int]], name: str = '') -> None:
        """
        Declare a tensor and its shards: (offset, elements, global server, priority); messages call it `name`.
        """

    def init(self, key: int, array: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)]) -> None:
        """
        Set the initial value of a tensor (float32) for all nodes; referenced, not copied.
        """

    def push_value(self, key: int, value: StagedValue, loss: float = float('nan'), last: bool = False, not_before_s: float = 0.0, absent: bool = False) -> int:
        """
        Push a value of a DeviceStaging, which is encoded on its device as far as codecs support it.
        """

    def push(self, key: int, array: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], loss: float = float('nan'), last: bool = False, not_before_s: float = 0.0, absent: bool = False) -> int:
        """
        Contribute to the next round; return the round. The float32 array is referenced, not copied. `absent`: the array is zeros, as this worker has no gradient; a round without any contribution changes nothing.
        """

    def set_made(self, steps: int) -> None:
        """State the local steps that the next pushes include."""

    def request(self, key: int) -> None:
        """Request the current value, which completes its round."""

    def wait(self, key: int, round: int, timeout_s: float) -> float:
        """
        Wait for the value of `round`; return its arrival in seconds since the start.
        """

    def absent(self, key: int) -> bool:
        """Return whether no worker contributed to the last complete value."""

    def reached(self, key: int) -> int:
        """
        Return the rounds that other parties have completed by the last complete value.
        """

    def go_on(self, key: int) -> int:
        """
        Count pushes from the round of the last complete value on; return it. For workers that join late.
        """

    def value(self, key: int, out: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]) -> None:
        """Copy the last complete value into a float32 array."""

    def barrier(self, timeout_s: float) -> None:
        """Wait for all workers."""

    def begin_iteration(self, iteration: int) -> None:
        """
        Tell all nodes that this worker begins a local step; they hear of the first worker only.
        """

    def await_iteration(self, number: int) -> tuple[int, float] | None:
        """
        Wait for the `number`th local step that a worker has told of, from 0; return it, and when this node heard of it, in seconds of clock_s(). None: the run is over.
        """

    def report(self, host: int, number: int, values: Sequence[float], not_before_s: float = 0.0) -> None:
        """
        Send numbers to the coordinator `number` on node `host`, after all earlier pushes.
        """

    def wait_reply(self, number: int, timeout_s: float) -> list[float]:
        """Wait for the oldest reply that has not been returned yet."""

    def run_optimizer(self, optimizer: str, unless_given: bool = False) -> None:
        """
        Have all global servers run an optimizer (its name, then an option and its value per line); a global server does so itself. `unless_given`: not if they run one already.
        """

    def expect_optimizer(self) -> None:
        """
        Another worker has all global servers run an optimizer: they use no later push of this worker before.
        """

    def initialise(self, key: int, index: int, shard: tuple[int, int, int, int], array: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)]) -> None:
        """
        Set the initial value of a global server's shard: (offset, elements, server, priority).
        """

    def global_value(self, key: int, shard: int) -> object:
        """Return a global server's value of one shard, or None."""

    def stats(self) -> dict:
        """Return the traffic by peer and the node's counts; also after close."""

    def residual_norms(self) -> dict:
        """
        Return the Euclidean norms of what codecs keep of pushes and pulls for later ones. Reads all of it.
        """

    def spans(self) -> list:
        """
        Return (name, category, start_s, duration_s, details) of a bounded number of spans.
        """

    def push_all(self, keys: Sequence[int], arrays: Sequence[Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)]], copy: bool, last: bool = False) -> None:
        """
        Push several keys, in order. With `copy` the arrays may be changed afterwards.
        """

    def wait_all(self, values: Sequence[tuple[int, int]], timeout_s: float) -> float:
        """
        Wait for the values of several (key, round); return the arrival of the last.
        """

    def values(self, keys: Sequence[int], arrays: Sequence[Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')]]) -> None:
        """
        Copy the last complete values of several keys into arrays; see `value`.
        """

    def record_steps(self) -> None:
        """Record local steps from now on; pushes are recorded by themselves."""

    def begin_step(self) -> None:
        """Begin a step, as the script tells."""

    def step_computed(self) -> None:
        """Note that the computing of the step is done."""

    def last_step(self) -> None:
        """End the last step."""

    def take_steps(self) -> list[tuple[int, int, int, int]]:
        """
        Return the steps that have ended since the last call: number, start, computing (while no thread of the application waited) and end in nanoseconds since the start of the run.
        """

class LocalSteps:
    """
    Where the local steps of a script begin and end, in nanoseconds. What returns a step that has ended
    returns its number, start and end.
    """

    def __init__(self, now_ns: int = 0) -> None: ...

    @property
    def told(self) -> bool:
        """Whether the script tells where steps begin."""

    @property
    def done(self) -> int:
        """Number of steps that have ended."""

    def begin(self, now_ns: int) -> tuple[int, int, int] | None:
        """Begin a step, as the script tells; return the one that this ends."""

    def push(self, key: int, returned_ns: int) -> tuple[int, int, int] | None:
        """
        Note a push, before it is made; return the step that had ended when the store returned last.
        """

    def computed(self) -> bool:
        """
        Note that the computing of the step is done; return whether it had not been before.
        """

    def leave(self, returned_ns: int) -> tuple[int, int, int] | None:
        """Return the last step, which ended when the store returned last."""

class EngineTarget:
    """Where an `MxnetEngine`'s operations go."""

class EngineQueue(EngineTarget):
    """
    The pushes and pulls that MXNet's engine has executed, in the process of a simulated worker.
    """

    def __init__(self) -> None: ...

    def wait(self) -> bool:
        """
        Wait until there is a push that was not taken or a pull that was not filled; return False if the queue is closed.
        """

    def take(self) -> list:
        """
        Return the pushes since the last call: number in the order of the script, key, value, loss, whether it is the last, and when it was executed: `used_ns` and the monotonic clock. The engine may overwrite a value when its array is released.
        """

    @property
    def used_ns(self) -> int:
        """Processor time of the process but for the thread that calls `wait`."""

    def oldest(self) -> tuple[int, int] | None:
        """
        Return key and round of the pull that the script made first, of those that wait.
        """

    def fill(self, key: int, round: int, value: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)]) -> None:
        """End the pulls of this round of a key, and of earlier ones."""

    def close(self, why: str) -> None:
        """End all pulls, and all later ones, with an error."""

def await_stillness() -> None:
    """Wait until all threads of this process but the calling one sleep."""

class MxnetEngine:
    """
    Push and pull as operations of MXNet's engine, for a loop or a queue. `push_async` is the address of MXEnginePushAsyncND. Arrays are given by handle, with the address of their float32 data.
    """

    @overload
    def __init__(self, queue: EngineQueue, push_async: int) -> None: ...

    @overload
    def __init__(self, loop: Loop, push_async: int) -> None: ...

    def push(self, key: int, data: int, elements: int, array: int, order: int, loss: float, last: bool, not_before_s: float, priority: int) -> None:
        """
        Contribute `array` once it has been written and nothing writes `order`; `array` is not overwritten before its bytes have left.
        """

    def pull(self, key: int, round: int, data: int, elements: int, array: int, priority: int) -> None:
        """
        Fill `array` with the value of `round` or a later one, when it has arrived.
        """
