// A worker's verbs: declare tensors, push, wait for values.
//
// Values are addressed by tensor; the worker cuts them into the plan's shards and reassembles them.
// A push is answered with the new value, so no pull message follows a push; a worker that has not
// pushed requests the current value.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/device_value.h"
#include "core/flat_map.h"
#include "core/node.h"

namespace geomx {

// A sentence about a kNonFinite event. `what`: its text. `refused`: nothing was sent.
std::string NonFiniteText(const std::string& worker, const std::string& key, Round round,
                          const std::string& what, bool refused);

class Worker final : public RoleLogic {
 public:
  explicit Worker(Node& node) : RoleLogic(node) {}

  struct Push {
    const float* value = nullptr;  // null if phantom
    std::shared_ptr<const void> owner;  // keeps `value` alive and unchanged until it has left
    float loss = 0;                // the last training loss; NaN if unknown
    bool last = false;
    bool finite = false;           // `value` is known to hold neither NaN nor infinity
    bool absent = false;           // this worker has nothing to contribute: `value` is zeros
    std::uint32_t made = 0;        // local steps that this worker has made; 0 if unknown: one for each push
    std::shared_ptr<DeviceValue> device;  // where `value` is; null: on the host
  };

  // A tensor's shards; shared by the workers of a simulation.
  using SharedShards = std::shared_ptr<const std::vector<ShardInfo>>;

  // Sets the key, the numbers and the name (NameDigest; 0: unknown) of shards. Throws
  // std::invalid_argument unless they cover the tensor in order.
  static SharedShards Cut(Key key, std::uint64_t elements, std::vector<ShardInfo> shards,
                          std::uint32_t name = 0);

  // Declares a tensor and its shards, which `Cut` has returned. A repeated declaration must be
  // equal; throws std::invalid_argument otherwise.
  void Declare(Key key, std::uint64_t elements, SharedShards shards);
  void Declare(Key key, std::uint64_t elements, std::vector<ShardInfo> shards) {
    Declare(key, elements, Cut(key, elements, std::move(shards)));
  }

  // Sets the tensor's initial value for all workers. The master calls this, once.
  void Init(Key key, const float* value, std::shared_ptr<const void> owner, Time now);

  // Queues one round's contribution, which leaves when the value of the previous round has arrived.
  // Returns the round.
  Round Submit(Key key, Push push, Time now);

  // Requests the current value. kValueReady answers with its round.
  void Request(Key key, Time now);

  void Barrier(Time now);

  // Sends an instruction, whose first line is its name, to all global servers. `unless_given`: it has
  // no effect after another one. Empty: another worker sends one, about the optimizer, and servers use no
  // later push of this worker before it has come.
  void Command(const std::string& text, Time now, bool unless_given = false);

  // The last complete value of a tensor: `elements` floats, empty before the first or if phantom.
  std::span<const float> Value(Key key);

  // Values of this tensor are for a device: from the next round on, those that can be decoded there
  // stay encoded until `Value` is called.
  void KeepEncoded(Key key);
  // A shard of the last complete value, encoded; `decoder` decodes it on a device.
  struct Encoded {
    std::uint64_t offset = 0;
    Parts parts;
    const CodecChain* decoder = nullptr;
  };
  // All shards of the last complete value; empty if some are not encoded. Valid until the next call
  // to the node.
  std::vector<Encoded> EncodedValue(Key key);
  // The tensors that were declared, in that order, and the length of one.
  std::vector<Key> Keys() const;
  std::uint64_t Elements(Key key) { return tensor(key).elements(); }
  // The rounds that the application has submitted.
  Round Submitted(Key key) { return tensor(key).submitted; }
  // The round of the last complete value.
  Round ValueRound(Key key) { return tensor(key).complete; }
  // The rounds that other parties have completed by that value, in rounds of this worker's party. More
  // than ValueRound if rounds have closed without this party.
  Round Reached(Key key) { return tensor(key).reached; }
  // Returns true if no worker contributed to that round, so that no optimizer has run.
  bool Absent(Key key) { return tensor(key).absent; }
  Round released() const { return released_; }  // the last barrier

  void OnValue(NodeId peer, const Header& header, Buffer value, Time now) override;
  void OnEncoded(NodeId peer, const Header& header, Buffer encoded, Time now) override;
  void OnBorrowed(NodeId peer, const Header& header, Borrowed rows, Time now) override;
  void OnMember(NodeId member, bool back, Time now) override;
  void OnControl(NodeId peer, const Message& message, Time now) override;
  bool Knows(const Header& header) const override { return tensors_.Find(header.key) != nullptr; }
  std::string Objection(NodeId from, const Header& header) const override;
  bool Unanswered() const override;
  bool AsksStates() const override { return asks_states_; }
  void ListWaits(Waits& waits) const override;
  void Describe(Digest& digest) const override;
  void Exchange(Archive& archive) override;

 private:
  // At which barrier this worker waits; 0: at none.
  void TellServer(Round barrier);
  // Pushes that are queued, and the value that has arrived.
  struct Content {
    std::list<Push> queue;  // std::list: allocates nothing while empty
    Buffer value;
    // Encoded shards, by number; the others are in `value`.
    std::map<std::uint32_t, std::pair<Round, std::shared_ptr<const Buffer>>> encoded;
    std::map<std::uint32_t, Borrowed> borrowed;  // likewise, in the memory of their messages
  };
  // Small for the same reason as an inbox.
  struct Tensor {
    std::uint32_t missing = 0;
    Round submitted = 0;            // rounds that the application has submitted
    Round sent = 0;                 // rounds that have left; later ones are queued
    Round complete = 0;
    Round reached = 0;              // rounds of the party, and those that closed without it
    std::uint32_t made = 0;         // Push::made of the last one that has left
    SliceSet arrived;               // shards of the incoming value
    SharedShards shards;
    std::unique_ptr<Content> content;  // null: empty
    bool waiting = false;           // a push or a request is unanswered
    bool has_value = false;
    bool absent = false;            // all shards so far of the last value are absent

    std::uint64_t elements() const { return shards->back().offset + shards->back().elements; }
    Content& Contents() {
      if (!content) content = std::make_unique<Content>();
      return *content;
    }
  };
  struct KeyHash {
    std::size_t operator()(Key key) const { return key; }  // keys are small consecutive numbers
  };

  Tensor& tensor(Key key);
  void Exchange(Archive& archive, Tensor& tensor) const;
  static void Exchange(Archive& archive, Push& push, std::uint64_t elements);
  void Send(Tensor& tensor, const Push& push, Time now);
  bool Acceptable(Key key, const Tensor& tensor, const Push& push);
  void Await(Tensor& tensor);
  // Accepts a shard's value if one is due: `store` then puts it into its tensor. Returns whether it
  // was due.
  template <class Store>
  void Arrive(NodeId peer, const Header& header, Store store, Time now);
  // Counts pushes on from the round of the values that were requested, of which that of one shard is `round`. Where
  // rounds close early, shards may have different ones, of which the earliest counts: no answer is then of an earlier
  // round than the push.
  void CountOn(Tensor& tensor, Round round);

  FlatMap<Key, Tensor, KeyHash> tensors_;
  Round barriers_ = 0, released_ = 0;
  bool told_ = false;  // about the optimizer
  bool asks_states_ = false;  // optimizers' states were asked for
  std::size_t unanswered_ = 0;  // tensors with pushes whose value has not arrived
};

}  // namespace geomx
