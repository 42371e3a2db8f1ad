# A folder with a codec.cpp is a codec: the folder's name is the method's, and all its *.cpp are compiled.

# gradwire_add_codecs(TARGET NAMES FOLDER…): compiles the folders into TARGET and sets NAMES to what they are called.
function(gradwire_add_codecs target names_variable)
  set(names "")
  foreach(folder IN LISTS ARGN)
    get_filename_component(folder ${folder} ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
    get_filename_component(name ${folder} NAME)
    if(NOT EXISTS ${folder}/codec.cpp)
      message(FATAL_ERROR "${folder} holds no codec.cpp: name the codec's own folder")
    elseif(NOT name MATCHES "^[a-z][a-z0-9]*$")
      message(FATAL_ERROR "codec folder '${name}': use lower-case letters and digits, a letter first")
    elseif(name IN_LIST names)
      message(FATAL_ERROR "two codec folders are called '${name}': rename ${folder}")
    endif()
    list(APPEND names ${name})
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
    target_sources(${target} PRIVATE ${sources})
    # "name/fast.cpp", which Highway includes once per target, is found beside the folder when it lies outside the tree.
    get_filename_component(parent ${folder} DIRECTORY)
    if(NOT parent STREQUAL PROJECT_SOURCE_DIR/compressors)
      set_source_files_properties(${sources} TARGET_DIRECTORY ${target} PROPERTIES INCLUDE_DIRECTORIES ${parent})
    endif()
  endforeach()
  set(${names_variable} ${names} PARENT_SCOPE)
endfunction()

# gradwire_codec_table(TARGET NAME… [CUDA NAME…]): gives TARGET the table of these codecs, from which the registry starts.
# Those behind CUDA have a codec.cu in the build.
function(gradwire_codec_table target)
  cmake_parse_arguments(ARG "" "" "CUDA" ${ARGN})
  set(names ${ARG_UNPARSED_ARGUMENTS})
  list(SORT names)
  list(LENGTH names count)
  set(declarations "")
  set(rows "")
  set(with_cuda "")
  foreach(name IN LISTS names)
    string(APPEND declarations "codec_entry const& ${name}();\n")
    if(name IN_LIST ARG_CUDA)
      string(APPEND declarations "codec_functions const& ${name}_cuda();\n")
      string(APPEND rows "      &with_cuda<${name}, ${name}_cuda>(),\n")
    else()
      string(APPEND rows "      &${name}(),\n")
    endif()
  endforeach()
  if(ARG_CUDA)
    string(CONCAT with_cuda "template <codec_entry const& (*Entry)(), codec_functions const& (*Cuda)()>\n"
                            "codec_entry const& with_cuda() {\n"
                            "  static codec_entry const entry = [] {\n"
                            "    codec_entry made = Entry();\n"
                            "    made.cuda = &Cuda();\n"
                            "    return made;\n"
                            "  }();\n"
                            "  return entry;\n"
                            "}\n\n")
  endif()
  set(table ${CMAKE_CURRENT_BINARY_DIR}/${target}_built_in.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/compressors/built_in.cpp.in ${table} @ONLY)
  target_sources(${target} PRIVATE ${table})
endfunction()

# gradwire_cuda_codecs(NAMES SOURCES FOLDER…): sets NAMES to the codecs that have kernels and SOURCES to their files.
function(gradwire_cuda_codecs names_variable sources_variable)
  set(names "")
  set(sources "")
  foreach(folder IN LISTS ARGN)
    if(EXISTS ${folder}/codec.cu)
      get_filename_component(name ${folder} NAME)
      list(APPEND names ${name})
      list(APPEND sources ${folder}/codec.cu)
    endif()
  endforeach()
  set(${names_variable} ${names} PARENT_SCOPE)
  set(${sources_variable} ${sources} PARENT_SCOPE)
endfunction()
