# Of llama.cpp only the library: the code of its own programs takes longer to compile than the rest, and llama-cpp-python
# asks for it by force. CMake reads this right after project(llama.cpp).
set(LLAMA_BUILD_COMMON OFF)
