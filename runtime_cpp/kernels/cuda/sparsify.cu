// Sparsification on a GPU: the same entries as selector.h, bit for bit, without synchronising with
// the host.
//
// One pass over the tensor reads the term, reads and writes velocity and sum, and copies the
// entries that reach the threshold, tile by tile, so that their order can be restored. Later
// kernels work on these few entries, or on the whole sum if too many or (in an exact choice) too
// few have passed. The device decides which: the host always launches the same kernels in the same
// order, and a kernel that has nothing to do returns at once.
//
// Launching takes longer than running most of these kernels, so there are few of them: a step that
// needs the results of all blocks is not a kernel of its own, but done by the last block to finish.
#include <algorithm>

#include "kernels/cuda/sparsify/choice.h"
#include "kernels/cuda/sparsify/filling.h"
#include "kernels/cuda/sparsify/pass.h"
#include "kernels/cuda/sparsify/threshold.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

struct Pieces {
  Control* control;
  unsigned long long* histogram;
  double* squares;
  double* squares_room;
  float* sample;
  Tile* tiles;
  Group* groups;
  Aside aside;
  Rows waiting;
};

std::uint64_t GroupsOf(std::uint64_t tiles) { return (tiles + kGroup - 1) / kGroup; }

Pieces Lay(Outline& outline, const Tensor& tensor, double clip, std::uint64_t sample,
           std::uint64_t tiles) {
  Pieces pieces;
  pieces.control = outline.Piece<Control>(1);
  pieces.histogram = outline.Piece<unsigned long long>(kBuckets);
  pieces.squares = outline.Piece<double>(1);
  pieces.squares_room = outline.Piece<double>(clip > 0 ? SquaresRoom(tensor.n) : 0);
  pieces.sample = outline.Piece<float>(sample);
  pieces.tiles = outline.Piece<Tile>(tiles);
  pieces.groups = outline.Piece<Group>(GroupsOf(tiles));
  // A threshold from a sample passes about 1.3 times as many entries as wanted, and hardly ever
  // four times.
  std::uint64_t room = sample == 0 ? 0 : 4 * tensor.rows + kTile;
  room = room < tensor.n ? room : tensor.n;
  pieces.aside.indices = outline.Piece<std::uint32_t>(room);
  pieces.aside.values = outline.Piece<float>(room);
  pieces.aside.room = room;
  pieces.waiting.indices = outline.Piece<std::uint32_t>(tensor.rows);
  pieces.waiting.values = outline.Piece<float>(tensor.rows);
  return pieces;
}

// Few blocks: each adds its whole histogram to that of all.
template <class Use>
void SelectRank(Context& context, const Pieces& pieces, const float* few, const float* all,
                std::uint64_t items, Use use) {
  const std::uint64_t most = 4 * std::uint64_t{context.multiprocessors};
  const std::uint64_t blocks = std::min(BlocksFor(context, items), most);
  for (const Digit digit : kDigits) {
    Launch(context, blocks, kThreads, &HistogramKernel<Use>, pieces.control, few, all, digit,
           pieces.histogram, use);
  }
}

}  // namespace

void Sparsify(Context& context, const Sparsification& how, const float* term, float* velocity,
              float* sum, std::uint64_t n, std::uint64_t rows, std::uint64_t* next_fill,
              std::uint32_t* indices, float* values) {
  if (rows == 0) return;
  const Tensor tensor{term, velocity, sum, n, rows, how.momentum, how.masking, how.exact};
  const Sampling sampling(n, rows);
  const std::uint64_t tiles = (n + kTile - 1) / kTile;
  Outline needed(nullptr);
  Lay(needed, tensor, how.clip, sampling.size, tiles);
  Outline outline(context.Scratch(needed.bytes()));
  const Pieces pieces = Lay(outline, tensor, how.clip, sampling.size, tiles);
  Control* const control = pieces.control;

  if (how.clip > 0) SumOfSquaresIn(context, term, n, pieces.squares, pieces.squares_room);
  Launch(context, 1, kThreads, &StartKernel, control, how.clip, pieces.squares, sampling.size,
         Sampling::Rank(sampling.rank), pieces.histogram);
  if (sampling.size > 0) {
    Launch(context, BlocksFor(context, sampling.size), kThreads, &SampleKernel, control, tensor,
           how.seed, sampling.size, pieces.sample);
    SelectRank(context, pieces, pieces.sample, nullptr, sampling.size, UseAsThreshold{});
  }
  const bool aligned = Aligned16(term, velocity, sum);
  Launch(context, tiles, kThreads,
         velocity != nullptr ? &AccumulateKernel<true> : &AccumulateKernel<false>, control, tensor,
         aligned, pieces.aside, pieces.tiles);
  SelectRank(context, pieces, pieces.aside.values, sum, n, UseAsLeast{});
  Launch(context, GroupsOf(tiles), kThreads, &CountKernel, control, tensor, pieces.aside,
         pieces.tiles, tiles, pieces.groups);
  const Rows wanted{indices, values};
  Launch(context, BlocksFor(context, tiles * kWarp), kThreads, &EmitKernel, control, tensor,
         pieces.aside, pieces.tiles, tiles, pieces.groups, wanted, pieces.waiting, next_fill);
  Launch(context, BlocksFor(context, rows), kThreads, &FillKernel, control, tensor, pieces.waiting,
         wanted);
}

}  // namespace geomx::kernels::GEOMX_CUDA
