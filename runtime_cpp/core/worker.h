// A worker's verbs: declare tensors, push, wait for values.
//
// Values are addressed by tensor; the worker cuts them into the shards that the plan gave it and
// puts them together again. A push is answered with the new value, so there is no pull message after
// a push; a worker that has not pushed asks for the current value.
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
    bool absent = false;           // zeros: this worker has nothing to contribute
    std::shared_ptr<DeviceValue> device;  // `value` lies there; null: on the host
  };

  // How a tensor is cut; many workers of a simulation share one.
  using SharedShards = std::shared_ptr<const std::vector<ShardInfo>>;

  // Shards with their key and numbers. Throws std::invalid_argument unless they cover the tensor in
  // order.
  static SharedShards Cut(Key key, std::uint64_t elements, std::vector<ShardInfo> shards);

  // A tensor and how it is cut: `shards` are of `Cut`. Declaring the same again is allowed; throws
  // std::invalid_argument if it differs.
  void Declare(Key key, std::uint64_t elements, SharedShards shards);
  void Declare(Key key, std::uint64_t elements, std::vector<ShardInfo> shards) {
    Declare(key, elements, Cut(key, elements, std::move(shards)));
  }

  // Give the tensor its initial value, for everyone (the master does this, once).
  void Init(Key key, const float* value, std::shared_ptr<const void> owner, Time now);

  // Queue one round's contribution. It leaves when the value of the round before is in.
  // Returns the round.
  Round Submit(Key key, Push push, Time now);

  // Ask for the current value. Answered by kValueReady with the round it belongs to.
  void Request(Key key, Time now);

  void Barrier(Time now);

  // An instruction to all global servers: its first line is its name.
  void Command(const std::string& text, Time now);

  // The last complete value of a tensor: `elements` floats, empty before the first or if phantom.
  std::span<const float> Value(Key key);

  // Values of this tensor are for a device: as far as they can be decoded there they stay encoded,
  // from the next round on, until `Value` is asked for.
  void KeepEncoded(Key key);
  // A shard of the last complete value, encoded; `decoder` decodes it on a device.
  struct Encoded {
    std::uint64_t offset = 0;
    Parts parts;
    const CodecChain* decoder = nullptr;
  };
  // All of its shards; nothing if some are not encoded. Valid until the node is called again.
  std::vector<Encoded> EncodedValue(Key key);
  // The round that the last complete value belongs to.
  Round ValueRound(Key key) { return tensor(key).complete; }
  // Whether no worker contributed to that round, so that no optimizer has seen it.
  bool Absent(Key key) { return tensor(key).absent; }

  void OnValue(NodeId peer, const Header& header, Buffer value, Time now) override;
  void OnEncoded(NodeId peer, const Header& header, Buffer encoded, Time now) override;
  void OnMember(NodeId member, bool back, Time now) override;
  void OnControl(NodeId peer, const Message& message, Time now) override;
  bool Unanswered() const override;
  void ListWaits(Waits& waits) const override;
  void Describe(Digest& digest) const override;

 private:
  // What has been pushed and not sent, and what has come.
  struct Content {
    std::list<Push> queue;  // takes nothing while it is empty
    std::vector<float> value;
    // Of the shards that are encoded, by number; the rest of the value is in `value`.
    std::map<std::uint32_t, std::pair<Round, std::shared_ptr<const Buffer>>> encoded;
  };
  // Small, like an inbox, and for the same reason.
  struct Tensor {
    std::uint32_t missing = 0;
    Round submitted = 0;            // rounds that the application asked for
    Round sent = 0;                 // pushes of the others are queued
    Round complete = 0;
    SliceSet arrived;               // shards of the value that is coming in
    SharedShards shards;
    std::unique_ptr<Content> content;  // null: nothing
    bool waiting = false;           // a push or a request is unanswered
    bool has_value = false;
    bool absent = false;            // so far: all shards of the last value

    std::uint64_t elements() const { return shards->back().offset + shards->back().elements; }
    Content& Contents() {
      if (!content) content = std::make_unique<Content>();
      return *content;
    }
  };
  struct KeyHash {
    std::size_t operator()(Key key) const { return key; }  // keys are numbers from 0 on
  };

  Tensor& tensor(Key key);
  void Send(Tensor& tensor, const Push& push, Time now);
  bool Acceptable(Key key, const Tensor& tensor, const Push& push);
  void Await(Tensor& tensor);
  // Whether a value of this shard is due; if so, `store` puts it into its tensor.
  template <class Store>
  void Arrive(NodeId peer, const Header& header, Store store, Time now);

  FlatMap<Key, Tensor, KeyHash> tensors_;
  Round barriers_ = 0, released_ = 0;
  std::size_t unanswered_ = 0;  // tensors with pushes whose value has not come
};

}  // namespace geomx
