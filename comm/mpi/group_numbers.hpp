#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

namespace gradwire::mpi {

//! The numbers of this rank's groups that send over one communicator, in the tags of their messages.
class group_numbers {
 public:
  static constexpr int shift = 15;  //!< below are transfer's tags

  explicit group_numbers(int most_tag) : most_{((static_cast<std::uint32_t>(most_tag) + 1) >> shift) - 1} {}

  [[nodiscard]] std::uint32_t most() const noexcept { return most_; }
  [[nodiscard]] std::uint32_t first_free(std::uint32_t least) const {
    std::scoped_lock const lock{mutex_};
    while (taken_.contains(least)) ++least;
    return least;
  }

  //! A number that is taken until this is destroyed.
  class claim {
   public:
    //! Nothing when it is taken.
    static std::optional<claim> take(std::shared_ptr<group_numbers> const& from, std::uint32_t number) {
      std::scoped_lock const lock{from->mutex_};
      if (!from->taken_.insert(number).second) return std::nullopt;
      return claim{from, number};
    }
    ~claim() {
      if (!from_) return;
      std::scoped_lock const lock{from_->mutex_};
      from_->taken_.erase(value_);
    }
    claim(claim&&) noexcept = default;
    claim& operator=(claim&&) = delete;
    claim(claim const&) = delete;
    claim& operator=(claim const&) = delete;

    [[nodiscard]] std::uint32_t value() const noexcept { return value_; }
    //! Never free again: messages with it may still be under way.
    void keep() noexcept { from_.reset(); }

   private:
    claim(std::shared_ptr<group_numbers> from, std::uint32_t number) : from_{std::move(from)}, value_{number} {}

    std::shared_ptr<group_numbers> from_;
    std::uint32_t value_;
  };

 private:
  mutable std::mutex mutex_;
  std::uint32_t most_;
  std::set<std::uint32_t> taken_;
};

}  // namespace gradwire::mpi
