// A global server: sums what the parties push, lets the optimizer (if one was set) turn the sum into
// new weights, and answers every party with the result.
#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "core/node.h"

namespace geomx {
namespace {

class GlobalServer final : public RoleLogic {
 public:
  explicit GlobalServer(Node& node) : RoleLogic(node) {}

  void OnValue(NodeId peer, const Header& header, Buffer value, Time now) override {
    Shard& shard = this->shard(header);
    if (header.kind == Kind::kInit) {
      if (shard.has_value) return;  // the first initial value stands
      shard.value = std::make_shared<Buffer>(std::move(value));
      shard.has_value = true;
      const std::vector<NodeId> waiting = std::exchange(shard.waiting, {});
      SendPlain(header, shard, waiting, now);
      return;
    }
    if (header.round != shard.round + 1) {
      return Fail(peer, "push of round " + std::to_string(header.round) + " in round " +
                            std::to_string(shard.round + 1));
    }
    node_.work().aggregate.Add(std::uint64_t{header.shard_elements} * sizeof(float));
    if (!shard.sum.Add(peer, header.merge_count, std::move(value))) {
      return Fail(peer, "pushed twice in one round");
    }
    if (shard.sum.complete()) Update(header, shard, now);
  }

  void OnControl(NodeId peer, const Message& message, Time now) override {
    const Header& header = message.header;
    if (header.kind == Kind::kPullRequest) {
      Shard& shard = this->shard(header);
      if (shard.has_value) return SendPlain(header, shard, {&peer, 1}, now);
      if (std::find(shard.waiting.begin(), shard.waiting.end(), peer) == shard.waiting.end()) {
        shard.waiting.push_back(peer);
      }
    } else if (header.kind == Kind::kCommand) {
      std::vector<std::byte> scratch;
      const auto words = UnpackStrings(message.payload.Contiguous(scratch), 1);
      if (!words) return Fail(peer, "a command that is not one string");
      Obey(words->front());
    }
  }

  const Buffer* Value(Key key, std::uint32_t shard) const {
    const auto found = shards_.find({key, shard});
    if (found == shards_.end() || !found->second.has_value) return nullptr;
    return found->second.value.get();
  }

 private:
  struct Shard {
    explicit Shard(const NodeConfig& config) : sum(config.children, config.quorum) {}
    Aggregator sum;
    Round round = 0;
    bool has_value = false;
    std::shared_ptr<Buffer> value;
    std::unique_ptr<Optimizer> optimizer;
    std::vector<NodeId> waiting;  // local servers that asked before there was a value
  };

  Shard& shard(const Header& header) {
    return shards_.try_emplace({header.key, header.shard}, node_.config()).first->second;
  }

  void Fail(NodeId peer, std::string reason) {
    node_.Emit({.kind = Event::Kind::kPeerError, .peer = peer, .reason = std::move(reason)});
  }

  // "optimizer\nNAME\nOPTION VALUE\n...": state of the one before is forgotten.
  void Obey(const std::string& text) {
    const std::size_t line_end = text.find('\n');
    const std::string verb = text.substr(0, line_end);
    try {
      if (verb != "optimizer" || line_end == std::string::npos) {
        throw std::invalid_argument("unknown instruction " + verb);
      }
      OptimizerSpec spec = OptimizerSpec::Parse(text.substr(line_end + 1));
      for (auto& [id, shard] : shards_) shard.optimizer.reset();
      optimizer_ = std::move(spec);
      node_.Emit({.kind = Event::Kind::kCommand, .text = verb});
    } catch (const std::invalid_argument& error) {
      node_.Emit({.kind = Event::Kind::kRefused, .text = verb, .reason = error.what()});
    }
  }

  void Update(Header header, Shard& shard, Time now) {
    Buffer sum = shard.sum.Take();
    ++shard.round;
    ++node_.counts().rounds;
    if (optimizer_ && !shard.has_value) {
      return Fail(header.source, "push of a key that was never initialised");
    }
    node_.work().update.Add(std::uint64_t{header.shard_elements} * sizeof(float));
    if (!optimizer_ || sum.empty()) {
      shard.value = std::make_shared<Buffer>(std::move(sum));
    } else {
      // The last answer may still be leaving from the old value's memory.
      if (shard.value.use_count() > 1) shard.value = std::make_shared<Buffer>(*shard.value);
      if (!shard.optimizer) shard.optimizer = Optimizer::Make(*optimizer_, header.key);
      shard.optimizer->Update(*shard.value, sum);
    }
    shard.has_value = true;
    header.kind = Kind::kValue;
    header.flags = 0;
    header.round = shard.round;
    header.merge_count = node_.config().quorum;
    header.loss = std::numeric_limits<float>::quiet_NaN();
    node_.Emit({.kind = Event::Kind::kUpdated,
                .key = header.key,
                .shard = header.shard,
                .round = shard.round});
    Send(header, shard, node_.config().children, now);
  }

  void SendPlain(Header header, const Shard& shard, std::span<const NodeId> targets, Time now) {
    header.kind = Kind::kValue;
    header.flags = kPlain;
    header.round = shard.round;
    header.merge_count = node_.config().quorum;
    Send(header, shard, targets, now);
  }

  void Send(const Header& header, const Shard& shard, std::span<const NodeId> targets, Time now) {
    node_.SendValue(targets, Direction::kPull, header,
                    shard.value->empty() ? nullptr : shard.value->data(), shard.value, now);
  }

  std::map<std::pair<Key, std::uint32_t>, Shard> shards_;
  std::optional<OptimizerSpec> optimizer_;
};

}  // namespace

std::unique_ptr<RoleLogic> MakeGlobalServer(Node& node) {
  return std::make_unique<GlobalServer>(node);
}

const Buffer* GlobalValueOf(const RoleLogic& logic, Key key, std::uint32_t shard) {
  return static_cast<const GlobalServer&>(logic).Value(key, shard);
}

}  // namespace geomx
