// A party's local server: sums its workers' pushes, asks the sync policy whether the sum goes to the
// global server or straight back, and hands every answer to all its workers.
#include <algorithm>
#include <map>
#include <utility>

#include "core/server_role.h"

namespace geomx {
namespace {

class Server final : public ServerRole {
 public:
  explicit Server(Node& node) : ServerRole(node), policy_(node.config().policy) {
    if (!policy_) policy_ = std::make_shared<PartyPolicy>();
  }

  void OnValue(NodeId peer, const Header& header, Buffer value, Time now) override {
    Shard& shard = this->shard(header);
    if (!HasSize(peer, header, shard)) return;
    if (shard.updating) {
      Defer(shard, [=, this, value = std::move(value)](Time at) { OnValue(peer, header, value, at); });
      return;
    }
    switch (header.kind) {
      case Kind::kInit: return Forward(header, std::move(value), now);
      case Kind::kPush: return Push(peer, header, shard, std::move(value), now);
      default: return Answer(peer, header, shard, std::move(value), now);
    }
  }

  void OnLinkDown(NodeId peer, const std::string& reason, Time now) override {
    if (!left().contains(peer)) RoleLogic::OnLinkDown(peer, reason, now);
  }

  void OnControl(NodeId peer, const Message& message, Time now) override {
    switch (message.header.kind) {
      case Kind::kPullRequest: {
        Shard& shard = this->shard(message.header);
        if (HasSize(peer, message.header, shard)) Request(peer, message.header, shard, now);
        return;
      }
      case Kind::kBye: return Bye(peer);
      case Kind::kCommand: return Command(peer, message);
      default: return;
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
        AddWaits(key, shard, waits);
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
                 std::uint64_t{shard.value != nullptr});
      for (const NodeId worker : shard.waiting) digest.Add(std::uint64_t{worker});
      if (node_.config().policy) policy_->Describe(digest, shard.round);
    }
    if (!left().empty()) digest.Unknown();
  }

 private:
  struct Shard : SummedShard {
    using SummedShard::SummedShard;
    Round global_round = 0;  // the last one that was sent to the global server
    bool last = false;
    bool escalated = false;               // an answer to `global_round` is due
    std::shared_ptr<const Buffer> value;  // the workers' last; null: none yet
    NodeId parent = 0;                    // the one that was sent to last
  };

  Shard& shard(const Header& header) {
    return shards_.try_emplace({header.key, header.shard}, node_.config()).first->second;
  }

  // The global server of a shard.
  std::optional<NodeId> Parent(NodeId peer, const Header& header) {
    const auto& parents = node_.config().parents;
    if (header.server < parents.size()) return parents[header.server];
    node_.Fail(peer, "no global server " + std::to_string(header.server));
    return std::nullopt;
  }

  // Workers' instructions go up; those of a global server are about the replicas here.
  void Command(NodeId peer, const Message& message) {
    const auto text = Text(peer, message);
    if (!text) return;
    const auto& parents = node_.config().parents;
    if (std::find(parents.begin(), parents.end(), peer) != parents.end()) return Obey(*text);
    for (const NodeId parent : parents) {
      node_.Send(parent, ControlMessage(Kind::kCommand, {*text}));
    }
  }

  void Obey(const std::string& text) {
    auto optimizer = ParseOptimizer(text);
    if (!optimizer) return;
    optimizer_ = std::move(optimizer);
    for (auto& [id, shard] : shards_) ForgetOptimizer(shard);
  }

  void Bye(NodeId peer) {
    if (!node_.IsChild(peer) || !AddLeft(peer)) return;
    for (const auto& [id, shard] : shards_) CheckLeft(id.first, shard);
    if (left().size() == node_.config().children.size()) node_.membership().TellFinished();
  }

  // ---- up ----

  void Forward(const Header& header, Buffer value, Time now) {
    const auto parent = Parent(header.source, header);
    if (!parent) return;
    const auto owned = std::make_shared<const Buffer>(std::move(value));
    node_.Send({&*parent, 1}, {header, owned->empty() ? nullptr : owned->data(), owned}, now);
  }

  void Push(NodeId peer, const Header& header, Shard& shard, Buffer value, Time now) {
    if (policy_->NeedsInitial() && shard.value == nullptr) {
      return node_.Fail(peer, "push before the initial value was asked for");
    }
    if (shard.escalated) return FailRound(peer, header, shard.round + 1);
    if (!Contribute(peer, header, shard, std::move(value))) return;
    shard.last = shard.last || (header.flags & kLast) != 0;
    if (shard.sum.complete()) return Complete(header, shard, now);
    CheckLeft(header.key, shard);
  }

  void Complete(Header header, Shard& shard, Time now) {
    const auto parent = Parent(header.source, header);
    if (!parent) return;
    const std::uint32_t merge_count = shard.sum.merge_count();
    auto sum = std::make_shared<Buffer>(node_.sums().Decoded(header, shard.sum.Take()));
    ++shard.round;
    header.flags = TakeFlags(shard);
    ++node_.counts().rounds;
    const ShardInfo info = header.shard_info();
    const auto action = policy_->Complete({info, shard.round, merge_count, shard.last}, *sum);
    if (action == PartyPolicy::Action::kReturn) return Deliver(header, shard, sum, now);
    shard.escalated = true;
    shard.parent = *parent;
    header.kind = Kind::kPush;
    header.merge_count = merge_count;
    header.round = ++shard.global_round;
    if (shard.last) header.flags |= kLast;
    node_.Send({&*parent, 1}, {header, sum->empty() ? nullptr : sum->data(), sum}, now);
  }

  void Request(NodeId peer, const Header& header, Shard& shard, Time now) {
    if (shard.updating) {
      Defer(shard, [=, this, &shard](Time at) { Request(peer, header, shard, at); });
      return;
    }
    if (shard.value) return SendCurrent(header, shard.round, shard.value, {&peer, 1}, now);
    const auto parent = Parent(peer, header);
    if (!parent) return;
    if (shard.waiting.empty()) node_.Send(*parent, Message{.header = header});
    shard.parent = *parent;
    AddWaiting(shard, peer);
  }

  // ---- down ----

  void Answer(NodeId peer, const Header& header, Shard& shard, Buffer value, Time now) {
    if ((header.flags & kPlain) != 0) return Initial(header, shard, std::move(value), now);
    if (!shard.escalated || header.round != shard.global_round) {
      return node_.Fail(peer, "answer to round " + std::to_string(header.round) +
                                  " that is not open");
    }
    shard.escalated = false;
    if (!node_.config().rounds.update_at_party) {
      return Conclude(header, shard, std::move(value), now);
    }
    if (optimizer_ && !shard.weights.has_value()) {
      return node_.Fail(peer, "an answer to a key whose initial value nobody asked for");
    }
    const GradientSource from{header.merge_count, peer, (header.flags & kAbsent) != 0};
    if (Update(header, shard, std::move(value), optimizer_, from, false)) {
      return Conclude(header, shard, *shard.weights.value(), now);
    }
    WhenUpdated(shard, [=, this, &shard](Time at) {
      Conclude(header, shard, *shard.weights.value(), at);
    });
  }

  // What the global server answered, or what the replica here became.
  void Conclude(const Header& header, Shard& shard, Buffer value, Time now) {
    auto owned = std::make_shared<Buffer>(std::move(value));
    policy_->Answer(header.shard_info(), *owned);
    Deliver(header, shard, std::move(owned), now);
  }

  // The current value, which a worker asked for.
  void Initial(const Header& header, Shard& shard, Buffer value, Time now) {
    if (shard.value) return;
    auto owned = std::make_shared<const Buffer>(std::move(value));
    policy_->Initial(header.shard_info(), *owned);
    if (node_.config().rounds.update_at_party) shard.weights.Set(*owned);
    shard.value = std::move(owned);
    const std::vector<NodeId> waiting = std::exchange(shard.waiting, {});
    SendCurrent(header, shard.round, shard.value, waiting, now);
  }

  // What a round came to, to all workers.
  void Deliver(const Header& header, Shard& shard, std::shared_ptr<const Buffer> value, Time now) {
    shard.value = std::move(value);
    const NodeConfig& config = node_.config();
    SendResult(header, shard.round, config.quorum, shard.value, config.children, now);
  }

  std::shared_ptr<PartyPolicy> policy_;
  std::optional<OptimizerSpec> optimizer_;  // where updates happen here
  std::map<std::pair<Key, std::uint32_t>, Shard> shards_;
};

}  // namespace

std::unique_ptr<RoleLogic> MakeServer(Node& node) { return std::make_unique<Server>(node); }

}  // namespace geomx
