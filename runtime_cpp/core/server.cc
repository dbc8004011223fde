// A party's local server: sums its workers' pushes, asks the sync policy whether the sum goes to the
// global server or straight back, and hands every answer to all its workers.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/node.h"
#include "core/replica.h"

namespace geomx {
namespace {

class Server final : public RoleLogic {
 public:
  explicit Server(Node& node) : RoleLogic(node), policy_(node.config().policy) {
    if (!policy_) policy_ = std::make_shared<PartyPolicy>();
  }

  void OnValue(NodeId peer, const Header& header, Buffer value, Time now) override {
    Shard& shard = this->shard(header);
    if (!SameSize(peer, header, shard)) return;
    switch (header.kind) {
      case Kind::kInit: Forward(header, std::move(value), now); return;
      case Kind::kPush: Contribute(peer, header, shard, std::move(value), now); return;
      default: Answer(peer, header, shard, std::move(value), now); return;
    }
  }

  void OnLinkDown(NodeId peer, const std::string& reason, Time now) override {
    if (!left_.contains(peer)) RoleLogic::OnLinkDown(peer, reason, now);
  }

  void OnControl(NodeId peer, const Message& message, Time now) override {
    const Header& header = message.header;
    if (header.kind == Kind::kPullRequest) {
      Shard& shard = this->shard(header);
      if (SameSize(peer, header, shard)) Request(peer, header, shard, now);
    } else if (header.kind == Kind::kBye) {
      Bye(peer);
    } else if (header.kind == Kind::kCommand) {
      std::vector<std::byte> scratch;
      const auto words = UnpackStrings(message.payload.Contiguous(scratch), 1);
      if (!words) return Fail(peer, "a command that is not one string");
      const auto& parents = node_.config().parents;
      if (std::find(parents.begin(), parents.end(), peer) != parents.end()) {
        return Obey(words->front());
      }
      for (const NodeId parent : parents) {
        node_.SendControl(parent, Kind::kCommand, {words->front()});
      }
    }
  }

  void ListWaits(Waits& waits) const override {
    for (const auto& [id, shard] : shards_) {
      const Key key = id.first;
      if (shard.escalated) {
        waits.Add({.kind = Wait::Kind::kAnswer,
                   .whom = {shard.parent},
                   .key = key,
                   .round = shard.global_round});
      } else if (shard.sum.merge_count() > 0) {
        waits.Add({.kind = Wait::Kind::kPush,
                   .whom = shard.sum.Lacking(),
                   .key = key,
                   .round = shard.round + 1});
      } else if (!shard.waiting.empty()) {
        waits.Add({.kind = Wait::Kind::kInitial, .whom = {shard.parent}, .key = key});
      }
    }
  }

  void Describe(Digest& digest) const override {
    for (const auto& [id, shard] : shards_) {
      shard.sum.Describe(digest);
      digest.Count(Digest::Level::kParty, shard.round);
      digest.Count(Digest::Level::kGlobal, shard.global_round);
      digest.Add(std::uint64_t{shard.last} << 2 | std::uint64_t{shard.escalated} << 1 |
                 std::uint64_t{shard.has_value});
      for (const NodeId worker : shard.waiting) digest.Add(std::uint64_t{worker});
      if (node_.config().policy) policy_->Describe(digest, shard.round);
    }
    if (!left_.empty()) digest.Unknown();
  }

 private:
  struct Shard {
    explicit Shard(const NodeConfig& config) : sum(config.children, config.quorum) {}
    Aggregator sum;
    std::uint32_t elements = 0;  // 0: not known yet
    NodeId sized_by = 0;         // who said so
    Round round = 0;         // of the party
    Round global_round = 0;  // of those that went to the global server
    bool last = false;
    bool present = false;    // a worker has contributed to the round more than its absence
    bool escalated = false;  // an answer is due
    bool has_value = false;
    std::shared_ptr<const Buffer> value;  // the workers' last
    Replica weights;                      // where updates happen at the parties
    NodeId parent = 0;            // that was sent to last
    std::vector<NodeId> waiting;  // workers that asked before there was a value
  };

  Shard& shard(const Header& header) {
    return shards_.try_emplace({header.key, header.shard}, node_.config()).first->second;
  }

  void Fail(NodeId peer, std::string reason) {
    node_.Emit({.kind = Event::Kind::kPeerError, .peer = peer, .reason = std::move(reason)});
  }

  bool SameSize(NodeId peer, const Header& header, Shard& shard) {
    if (shard.elements == 0) {
      shard.elements = header.shard_elements;
      shard.sized_by = peer;
    }
    if (shard.elements == header.shard_elements) return true;
    Fail(peer, node_.SizesDiffer(header, peer, shard.sized_by, shard.elements));
    return false;
  }

  // The global server of a shard, or nothing if the header names none.
  std::optional<NodeId> Parent(NodeId peer, const Header& header) {
    const auto& parents = node_.config().parents;
    if (header.server < parents.size()) return parents[header.server];
    Fail(peer, "no global server " + std::to_string(header.server));
    return std::nullopt;
  }

  // From the global server, where updates happen here.
  void Obey(const std::string& text) {
    try {
      optimizer_ = ParseInstruction(text, node_.config().optimizers);
      for (auto& [id, shard] : shards_) shard.weights.ForgetOptimizer();
    } catch (const std::invalid_argument& error) {
      node_.Emit({.kind = Event::Kind::kRefused, .text = "optimizer", .reason = error.what()});
    }
  }

  void Forward(const Header& header, Buffer value, Time now) {
    const auto parent = Parent(header.source, header);
    if (!parent) return;
    auto owned = std::make_shared<const Buffer>(std::move(value));
    node_.SendValue({&*parent, 1}, Direction::kPush, header,
                    owned->empty() ? nullptr : owned->data(), owned, now);
  }

  void Contribute(NodeId peer, const Header& header, Shard& shard, Buffer value, Time now) {
    if (policy_->NeedsInitial() && !shard.has_value) {
      return Fail(peer, "push before the initial value was asked for");
    }
    if (shard.escalated || header.round != shard.round + 1) {
      return Fail(peer, "push of round " + std::to_string(header.round) + " in round " +
                            std::to_string(shard.round + 1));
    }
    node_.work().aggregate.Add(node_.AddedBytes(header));
    shard.last = shard.last || (header.flags & kLast) != 0;
    shard.present = shard.present || (header.flags & kAbsent) == 0;
    if (std::string wrong = node_.Miscount(peer, header.merge_count); !wrong.empty()) {
      return Fail(peer, std::move(wrong));
    }
    if (!shard.sum.Fits(header.merge_count)) {
      return Fail(peer, "stands for more workers than there are");
    }
    if (!shard.sum.Alike(value)) return Fail(peer, "encoded unlike what others pushed");
    if (!shard.sum.Add(peer, header.merge_count, std::move(value))) {
      return Fail(peer, "pushed twice in one round");
    }
    if (shard.sum.complete()) return Complete(header, shard, now);
    CheckLeft(header.key, shard);
  }

  void Bye(NodeId peer) {
    if (!node_.IsChild(peer) || !left_.insert(peer).second) return;
    for (const auto& [id, shard] : shards_) CheckLeft(id.first, shard);
    if (left_.size() == node_.config().children.size()) node_.TellFinished();
  }

  // A round that waits for somebody who has left would wait for ever: report that as a loss. Who left
  // had an answer to all that it pushed, so it has no part in a round that is open.
  void CheckLeft(Key key, const Shard& shard) {
    if (left_.empty() || shard.sum.merge_count() == 0) return;
    node_.EndRound(*left_.begin(), shard.round, shard.sum.First(), key, shard.round + 1);
  }

  void Complete(Header header, Shard& shard, Time now) {
    const auto parent = Parent(header.source, header);
    if (!parent) return;
    const std::uint32_t merge_count = shard.sum.merge_count();
    auto sum = std::make_shared<Buffer>(node_.Decoded(header, shard.sum.Take()));
    ++shard.round;
    header.flags = std::exchange(shard.present, false) ? 0 : kAbsent;
    ++node_.counts().rounds;
    const ShardInfo info = header.shard_info();
    const auto action = policy_->Complete({info, shard.round, merge_count, shard.last}, *sum);
    if (action == PartyPolicy::Action::kReturn) {
      Deliver(header, shard, std::move(sum), now);
      return;
    }
    shard.escalated = true;
    header.kind = Kind::kPush;
    header.merge_count = merge_count;
    header.round = ++shard.global_round;
    if (shard.last) header.flags |= kLast;
    node_.SendValue({&*parent, 1}, Direction::kPush, header, sum->empty() ? nullptr : sum->data(),
                    sum, now);
  }

  void Answer(NodeId peer, const Header& header, Shard& shard, Buffer value, Time now) {
    const ShardInfo info = header.shard_info();
    auto owned = std::make_shared<Buffer>(std::move(value));
    if ((header.flags & kPlain) != 0) {  // the current value, asked for by a worker
      if (shard.has_value) return;
      policy_->Initial(info, *owned);
      if (node_.config().rounds.update_at_party) shard.weights.Set(*owned);
      shard.value = owned;
      shard.has_value = true;
      const std::vector<NodeId> waiting = std::exchange(shard.waiting, {});
      SendPlain(header, shard, waiting, now);
      return;
    }
    if (!shard.escalated || header.round != shard.global_round) {
      return Fail(peer, "answer to round " + std::to_string(header.round) + " that is not open");
    }
    shard.escalated = false;
    if (node_.config().rounds.update_at_party) {
      if (optimizer_ && !shard.weights.has_value()) {
        return Fail(peer, "an answer to a key whose initial value nobody asked for");
      }
      node_.work().update.Add(std::uint64_t{header.shard_elements} * sizeof(float));
      const bool absent = (header.flags & kAbsent) != 0;
      shard.weights.Update(std::move(*owned), optimizer_, header.key,
                           {header.merge_count, peer, absent}, false, node_.config().device.get());
      *owned = *shard.weights.value();
    }
    policy_->Answer(info, *owned);
    Deliver(header, shard, std::move(owned), now);
  }

  // What a round came to, to all workers.
  void Deliver(Header header, Shard& shard, std::shared_ptr<const Buffer> value, Time now) {
    shard.value = std::move(value);
    shard.has_value = true;
    header.kind = Kind::kValue;
    header.flags &= kAbsent;
    header.round = shard.round;
    header.merge_count = node_.config().quorum;
    header.loss = std::numeric_limits<float>::quiet_NaN();
    node_.SendValue(node_.config().children, Direction::kPull, header,
                    shard.value->empty() ? nullptr : shard.value->data(), shard.value, now);
  }

  void SendPlain(Header header, const Shard& shard, std::span<const NodeId> targets, Time now) {
    header.kind = Kind::kValue;
    header.flags = kPlain;
    header.round = shard.round;
    header.merge_count = node_.config().quorum;
    node_.SendValue(targets, Direction::kPull, header,
                    shard.value->empty() ? nullptr : shard.value->data(), shard.value, now);
  }

  void Request(NodeId peer, const Header& header, Shard& shard, Time now) {
    if (shard.has_value) return SendPlain(header, shard, {&peer, 1}, now);
    const auto parent = Parent(peer, header);
    if (!parent) return;
    if (shard.waiting.empty()) node_.SendRequest(*parent, header);
    shard.parent = *parent;
    if (std::find(shard.waiting.begin(), shard.waiting.end(), peer) == shard.waiting.end()) {
      shard.waiting.push_back(peer);
    }
  }

  std::shared_ptr<PartyPolicy> policy_;
  std::optional<OptimizerSpec> optimizer_;  // where updates happen here
  std::set<NodeId> left_;                   // workers that said bye
  std::map<std::pair<Key, std::uint32_t>, Shard> shards_;
};

}  // namespace

std::unique_ptr<RoleLogic> MakeServer(Node& node) { return std::make_unique<Server>(node); }

}  // namespace geomx
