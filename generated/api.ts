import type { IsoTimestamp } from "../src/domain/timestamp.ts";
export interface paths {
    "/projects/{projectId}/modules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List modules
         * @description All modules of the project, newest first (by creation time, then by `module_id`, both descending). The list is
         *     complete: it has neither parameters nor pages. A long list is streamed, without `Content-Length`: if the response
         *     breaks off, repeat the request. A module whose creation time an import changes meanwhile may be missing or appear
         *     twice.
         *
         *     The key needs the scope `read`.
         */
        get: operations["listModules"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/projects/{projectId}/modules/{moduleId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a module
         * @description One module with its production definition, the one published last.
         *
         *     The key needs the scope `read`.
         */
        get: operations["getModule"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/projects/{projectId}/modules/{moduleId}/versions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the versions of a module
         * @description The saved versions of a module, published or not, sorted by `version_number`. The list omits definitions; get a
         *     single version to read its definition.
         *
         *     The key needs the scope `read`.
         */
        get: operations["listModuleVersions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/projects/{projectId}/modules/{moduleId}/versions/{versionNumber}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a version of a module
         * @description One saved version with its definition. A version never changes once saved.
         *
         *     The key needs the scope `read`.
         */
        get: operations["getModuleVersion"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/projects/{projectId}/entries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List entries
         * @description Every entry of the project with its user data, sorted by `updated_at`, then `entry_id`. To keep a copy up to
         *     date, see *Synchronization*.
         *
         *     The key needs the scope `read`.
         */
        get: operations["listEntries"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/projects/{projectId}/entries/{entryId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get an entry
         * @description One contact's run through a module, with the user data collected in it.
         *
         *     The key needs the scope `read`.
         */
        get: operations["getEntry"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/projects/{projectId}/entries/{entryId}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the events of an entry
         * @description The events of an entry, both page views and custom events, sorted by `timestamp`; events of the same millisecond
         *     have a stable order. Fields that do not apply to an event are omitted, never `null`.
         *
         *     The key needs the scope `read`.
         */
        get: operations["listEntryEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/projects/{projectId}/entries-page-views": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the page views of all entries
         * @description Every entry of the project with its page views, sorted by `updated_at`, then `entry_id`. The page views of an
         *     entry are complete and always oldest first; an entry without page views has an empty array.
         *
         *     To keep a copy up to date, request all pages with `direction=ASC` and `updated_after` set to five minutes before
         *     the latest `updated_at` you have seen that is not in the future, and replace entries by `entry_id`. A custom event does not change
         *     `updated_at`, and neither do page views that the operator imports without a later `updated_at`; after an import
         *     of old data, request the whole list.
         *
         *     The key needs the scope `read`.
         */
        get: operations["listEntryPageViews"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/projects/{projectId}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the events of a project
         * @description The feed: every event of the project, page views and custom events alike, sorted by `position`, which is the
         *     order in which they were recorded or imported. Once you have seen a position, no new event appears at or before
         *     it, whatever the event's `timestamp`; positions have gaps, which are never filled. The events of one import
         *     are sorted by entry, then by `timestamp` and `event_id`.
         *
         *     **Follow it** with `direction=ASC`: every page then has a `Next-Cursor`, the last one and an empty one included.
         *     Store it (it never expires) and request the next page with it; when `Link` is missing, you have caught up. Or
         *     store the greatest `position` of your copy, and start from it with `after`. With `wait`, an empty page is held
         *     back until there is an event, so that you need not poll.
         *
         *     The key needs the scope `read`.
         */
        get: operations["listProjectEvents"];
        put?: never;
        /**
         * Record a custom event
         * @description Records something that a contact did. `200` means that the event is stored durably and visible to the
         *     next read (with the `Consistency-Token`, if there is one).
         *
         *     **Contact.** The identifiers determine the contact. If none of them is known, a new contact is created with all
         *     of them. If the known ones belong to one contact, the event is that contact's and the new ones are added to it.
         *     If they belong to different contacts, nothing is written and the response is `409`. A contact is also known by
         *     the identifier `contact_id` with its own id as the value; as long as no contact has that id, it is an identifier
         *     like any other, and once it is recorded as one, no contact with that id can be imported. Keys are compared exactly
         *     and case-sensitively, values as JSON values.
         *
         *     **Entry.** Among the contact's entries of the module, the newest that was created at or before `timestamp`, else
         *     the oldest. If there is none, a new one is created.
         *
         *     **Safe retries.** Send an `Idempotency-Key` and repeat the request with it whenever you are unsure: as long as the
         *     key is kept, the event is recorded once and you get the first response again, byte for byte, with
         *     `Idempotent-Replayed: true`. Without a key, equal requests record separate events.
         *
         *     The key needs the scope `events:write`.
         */
        post: operations["recordCustomEvent"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/projects/{projectId}/events/batch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Record a batch of custom events
         * @description Records up to 1,000 custom events, as if each were sent to `recordCustomEvent`, one after another in this order.
         *     Each stands alone: the response has a result for each event, in the same order, with the status and the error
         *     that the event alone would get, and pointers such as `/body/events/3/timestamp`. So look at every `status`: the
         *     response is a `200` even if some events were refused.
         *
         *     **Safe retries.** Give each event an `idempotency_key`; the header `Idempotency-Key` is for single events and is
         *     refused here. Repeat the events whose result was a `503` (if the whole response was a `503` or was lost, all of
         *     them) with the same keys: what was recorded is not recorded again and gets its first result with
         *     `"replayed": true`. Batches and single events share one set of keys.
         *
         *     The limits of an event's fields hold in a batch as well, but that of 256 KiB for the body of a single event does not.
         *
         *     The whole response is a `503` if at least one event would get a `503` and none a `200`. For the rate limit a batch
         *     is one request.
         *
         *     The key needs the scope `events:write`.
         */
        post: operations["recordCustomEvents"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/projects/{projectId}/erasures": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the erasures of a project
         * @description One record for each contact that the operator has erased, together with its identifiers, entries and events. The
         *     record has opaque ids only. Sorted by `position`, which shares one counter with the `position` of events.
         *
         *     In a copy, first store all events read before the erasure; then delete the contact's events with a smaller
         *     `position`, and the entries in `entry_ids`. A contact may come back later, when somebody records or imports it
         *     again; its events then have greater positions. **Follow the list** as the feed of events, with `direction=ASC`
         *     and either `cursor` or `after`, and `wait` if you like.
         *
         *     The key needs the scope `read`.
         */
        get: operations["listErasures"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/projects/{projectId}/records": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Import records
         * @description Imports what a flow runtime of your own does: newline-delimited JSON, one record per line, parents before their
         *     children unless they are stored already. All of it is imported, or nothing. Send visitors' page views as they
         *     happen, a few records every second: they appear in the lists and in the feed immediately.
         *
         *     | `type` | required | optional |
         *     |---|---|---|
         *     | `group` | `group_id` | `name` |
         *     | `module` | `module_id`, `group_id`, `title` | `created_at` |
         *     | `module_version` | `module_id`, `version_number`, `saved_at`, `json_string` | `published_at` |
         *     | `contact` | `contact_id`, `identifiers` (an array of objects with `key` and `value`, which may be empty) | `created_at` |
         *     | `entry` | `entry_id`, `module_id`, `contact_id`, `updated_at` | `created_at`, `entry_data` |
         *     | `event` | `entry_id`, `timestamp`, `event_type` | `event_id`, `view_type`, `page_id`, `page_key`, `page_index`, `custom_event_name`, `custom_event_props`, `module_version_number`, `max_page_id`, `max_page_key`, `max_page_index`, `total_pages` |
         *
         *     `project_id` may be left out. Keys and values of identifiers are as in `recordCustomEvent`. A page view is an
         *     event of the type `flowpage.viewed` with `view_type`, `page_id`, `page_key` and `page_index`. It does not change
         *     its entry's `updated_at`, by which copies find changes: with each page view, and when user data changes, also send
         *     the entry, with a later `updated_at`. A custom event has the type `custom_event:triggered` and a
         *     `custom_event_name`, and none of the four fields of a page view. A module needs a published version, whose
         *     `version_number` is 1 or more and whose `published_at` is not in the future. If an event omits them, the version
         *     in effect, the furthest page and `total_pages` are derived. Give `max_page_id`, `max_page_key` and
         *     `max_page_index` together or not at all. A `null` in these or in `total_pages` means "unknown", and nothing is
         *     derived. An event of any other type keeps what it is imported with.
         *
         *     An event's `timestamp` is at most 24 hours ahead. `json_string`, `entry_data` and `custom_event_props` are strings
         *     of JSON text, the last one of an object, as in `recordCustomEvent`. `event_type`, `view_type` and
         *     `custom_event_name` have 1 to 200 characters, none of them a control character. The ids and keys of pages have at
         *     most 1,024 characters.
         *
         *     A line has at most 1,000 fields and items; a contact with more identifiers has several lines, each with its part.
         *     There are no empty lines, and no byte order mark. The `updated_at` of an entry should not be in the future, since
         *     those who copy entries by it would miss later ones.
         *
         *     **Safe retries.** Records are merged by their ids: what is stored already is `unchanged`, so after a `503` or a
         *     lost response send the same body again. An event without `event_id` gets a hash of its fields as its id. A
         *     field that is left out keeps its value. An entry's module and contact, a version's definition, an event, and the
         *     contact that an identifier belongs to cannot change: that is a `409`, as is a new contact whose id is the identifier
         *     `contact_id` of another one. So import a contact before you record events with its id.
         *
         *     The first bad line is reported by its number, such as `/body/3/page_index` on the third line, and nothing is
         *     imported. A line that is invalid by itself (a `400`) comes before one that contradicts what is stored or another
         *     line (a `409`). The response is a `503` if too many imports are running, of the project or in all. For the rate
         *     limit an import is one request.
         *
         *     The key needs the scope `import`.
         */
        post: operations["importRecords"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * @description An opaque identifier, compared byte by byte. It contains no control characters
         *     (U+0000–U+001F, U+007F–U+009F) and is not `.` or `..`.
         */
        ResourceId: string;
        /**
         * @description `ASC` is ascending, `DESC` descending.
         * @default DESC
         * @enum {string}
         */
        SortDirection: "ASC" | "DESC";
        /** @description An opaque text that marks the position in a list where a page begins. */
        PageCursor: string;
        /** @description Entity tags separated by commas, or `*` (RFC 9110). */
        EntityTags: string;
        /** @description A module, without its definition. */
        FlowModuleSummary: {
            /** @description Unique identifier of the module. */
            module_id: string;
            /** @description Title of the module. */
            title: string;
            /** @description The group that the module belongs to. */
            group_id: string;
            /** @description The project. */
            project_id: string;
        };
        /** @description A module with its production definition. */
        FlowModule: {
            /** @description Unique identifier of the module. */
            module_id: string;
            /** @description Title of the module. */
            title: string;
            /** @description The group that the module belongs to. */
            group_id: string;
            /** @description The project. */
            project_id: string;
            /** @description The definition published last, a JSON document stored as a string. */
            json_string_prod: string;
        };
        /** @description A saved version of a module, without its definition. */
        ModuleVersionSummary: {
            /** @description The module. */
            module_id: string;
            /**
             * Format: int32
             * @description Number of the version.
             */
            version_number: number;
            /**
             * Format: date-time
             * @description When the version was saved.
             */
            saved_at: IsoTimestamp;
        };
        /** @description A saved version of a module with its definition. */
        ModuleVersion: {
            /** @description The module. */
            module_id: string;
            /**
             * Format: int32
             * @description Number of the version.
             */
            version_number: number;
            /**
             * Format: date-time
             * @description When the version was saved.
             */
            saved_at: IsoTimestamp;
            /** @description The definition of this version, a JSON document stored as a string. */
            json_string: string;
        };
        /** @description One contact's run through a module. */
        FlowEntry: {
            /** @description Unique identifier of the entry. */
            entry_id: string;
            /** @description The group of the module. */
            group_id: string;
            /** @description The project. */
            project_id: string;
            /** @description The module of the entry. */
            module_id: string;
            /** @description The contact whose run it is. */
            contact_id: string;
            /**
             * Format: date-time
             * @description When the entry began.
             */
            created_at: IsoTimestamp;
            /**
             * Format: date-time
             * @description When the entry's user data or page views last changed: the `updated_at` of its latest import or, if an event
             *     created it and it was never imported, when that event was recorded, which may be later than `created_at`.
             *     Recording another event, or importing only page views, does not change it.
             */
            updated_at: IsoTimestamp;
            /** @description The user data collected in the run, a JSON value stored as a string. */
            entry_data: string;
        };
        /** @description An entry with its page views. */
        EntryPageViews: {
            /** @description Unique identifier of the entry. */
            entry_id: string;
            /** @description The group of the module. */
            group_id: string;
            /** @description The project. */
            project_id: string;
            /** @description The module of the entry. */
            module_id: string;
            /** @description The contact whose run it is. */
            contact_id: string;
            /**
             * Format: date-time
             * @description When the entry began.
             */
            created_at: IsoTimestamp;
            /**
             * Format: date-time
             * @description When the entry's user data or page views last changed: the `updated_at` of its latest import or, if an event
             *     created it and it was never imported, when that event was recorded, which may be later than `created_at`.
             *     Recording another event, or importing only page views, does not change it.
             */
            updated_at: IsoTimestamp;
            /** @description All pages viewed in the entry, oldest first. */
            page_views: components["schemas"]["PageView"][];
        };
        /** @description One view of a page. */
        PageView: {
            /**
             * Format: date-time
             * @description When the page was viewed.
             */
            timestamp: IsoTimestamp;
            /** @description Identifier of the page. */
            page_id: string;
            /** @description Key of the page. */
            page_key: string;
            /**
             * Format: int32
             * @description Position of the page in the module, from 0.
             */
            page_index: number;
        };
        /**
         * @description Something that happened in an entry. Page fields and `view_type` are present on page views,
         *     `custom_event_*` on custom events, `max_page_*` and `total_pages` where they are known. An event of another type
         *     has those that it was imported with.
         */
        EntryEvent: {
            /** @description Unique identifier of the event. */
            event_id: string;
            /** @description The entry. */
            entry_id: string;
            /** @description The contact of the entry. */
            contact_id: string;
            /** @description The project. */
            project_id: string;
            /** @description The group of the module. */
            group_id: string;
            /** @description The module of the entry. */
            module_id: string;
            /**
             * Format: int32
             * @description The version of the module in effect for the event.
             */
            module_version_number: number;
            /**
             * Format: date-time
             * @description When the event happened.
             */
            timestamp: IsoTimestamp;
            /** @description Page the event relates to. */
            page_id?: string;
            /** @description Key of that page. */
            page_key?: string;
            /**
             * Format: int32
             * @description Index of that page, from 0.
             */
            page_index?: number;
            /** @description Furthest page reached so far in the entry, as known when the event was stored. */
            max_page_id?: string;
            /** @description Key of the furthest page. */
            max_page_key?: string;
            /**
             * Format: int32
             * @description Index of the furthest page.
             */
            max_page_index?: number;
            /**
             * Format: int32
             * @description Number of pages in the module.
             */
            total_pages?: number;
            /**
             * @description Kind of event, an open set. Known values: `flowpage.viewed` (a page view) and `custom_event:triggered` (a
             *     custom event).
             * @example flowpage.viewed
             */
            event_type: string;
            /**
             * @description Kind of view, an open set. Known value: `flowpage`.
             * @example flowpage
             */
            view_type?: string;
            /** @description Name of the custom event. */
            custom_event_name?: string;
            /** @description Properties of the custom event, a JSON object stored as a string. */
            custom_event_props?: string;
        };
        /**
         * @description An event of the project, with its place in the feed. Page fields and `view_type` are present on page views,
         *     `custom_event_*` on custom events, `max_page_*` and `total_pages` where they are known. An event of another type
         *     has those that it was imported with.
         */
        ProjectEvent: {
            /** @description Unique identifier of the event. */
            event_id: string;
            /** @description The entry. */
            entry_id: string;
            /** @description The contact of the entry. */
            contact_id: string;
            /** @description The project. */
            project_id: string;
            /** @description The group of the module. */
            group_id: string;
            /** @description The module of the entry. */
            module_id: string;
            /**
             * Format: int32
             * @description The version of the module in effect for the event.
             */
            module_version_number: number;
            /**
             * Format: date-time
             * @description When the event happened.
             */
            timestamp: IsoTimestamp;
            /** @description Page the event relates to. */
            page_id?: string;
            /** @description Key of that page. */
            page_key?: string;
            /**
             * Format: int32
             * @description Index of that page, from 0.
             */
            page_index?: number;
            /** @description Furthest page reached so far in the entry, as known when the event was stored. */
            max_page_id?: string;
            /** @description Key of the furthest page. */
            max_page_key?: string;
            /**
             * Format: int32
             * @description Index of the furthest page.
             */
            max_page_index?: number;
            /**
             * Format: int32
             * @description Number of pages in the module.
             */
            total_pages?: number;
            /**
             * @description Kind of event, an open set. Known values: `flowpage.viewed` (a page view) and `custom_event:triggered` (a
             *     custom event).
             * @example flowpage.viewed
             */
            event_type: string;
            /**
             * @description Kind of view, an open set. Known value: `flowpage`.
             * @example flowpage
             */
            view_type?: string;
            /** @description Name of the custom event. */
            custom_event_name?: string;
            /** @description Properties of the custom event, a JSON object stored as a string. */
            custom_event_props?: string;
            /**
             * Format: date-time
             * @description When the event was recorded or imported. Its order may differ from that of `position`.
             */
            recorded_at: IsoTimestamp;
            /**
             * Format: int64
             * @description The place of the event in the feed, unique in the project. It grows, with gaps, and fits into a
             *     double-precision number.
             * @example 1772357500250000
             */
            position: number;
        };
        /** @description What was erased with a contact. Its ids are all that is left of the contact. */
        Erasure: {
            /** @description Unique identifier of the erasure. */
            erasure_id: string;
            /**
             * Format: int64
             * @description The place of the erasure among the events and erasures of the project. It grows, with gaps, and fits into a
             *     double-precision number.
             * @example 1772361000000000
             */
            position: number;
            /** @description The contact. */
            contact_id: string;
            /** @description The entries that the contact had. */
            entry_ids: string[];
            /**
             * Format: date-time
             * @description When it was erased.
             */
            erased_at: IsoTimestamp;
        };
        /** @description Something that a contact is known by. */
        ContactIdentifier: {
            /**
             * @description Name of the identifying attribute. No key may occur twice in one event.
             * @example email
             */
            key: string;
            /**
             * @description The value as JSON text: a non-empty string (`"\"amara.okafor@example.com\""`), a number or a boolean. Values
             *     are compared as JSON values, strings with their case, numbers exactly. The number `12345` and the string
             *     `"\"12345\""` differ: send an identifier always as the same type, or one person becomes two contacts. A
             *     string holds neither NUL nor a lone surrogate, escaped or not.
             * @example "amara.okafor@example.com"
             */
            value: string;
        };
        /** @description A custom event to record. */
        CustomEventInput: {
            module_id: components["schemas"]["ResourceId"];
            /**
             * Format: date-time
             * @description When the event happened. It may be long ago, but at most 24 hours ahead of the server's clock.
             */
            timestamp: IsoTimestamp;
            /** @description Name of the event, without control characters (U+0000–U+001F, U+007F–U+009F). */
            custom_event_name: string;
            /**
             * @description Properties as the text of a JSON object, at most 32 KiB in UTF-8 and 64 levels deep. It is stored and
             *     returned byte for byte.
             * @default {}
             */
            custom_event_props: string;
            /** @description What the contact is known by. */
            identifiers: components["schemas"]["ContactIdentifier"][];
        };
        /** @description Custom events to record. */
        CustomEventBatch: {
            /** @description The events, in the order in which they are recorded. An invalid one gets a result of its own. */
            events: components["schemas"]["CustomEventBatchItem"][];
        };
        /** @description A custom event to record with others. */
        CustomEventBatchItem: {
            module_id: components["schemas"]["ResourceId"];
            /**
             * Format: date-time
             * @description When the event happened. It may be long ago, but at most 24 hours ahead of the server's clock.
             */
            timestamp: IsoTimestamp;
            /** @description Name of the event, without control characters (U+0000–U+001F, U+007F–U+009F). */
            custom_event_name: string;
            /**
             * @description Properties as the text of a JSON object, at most 32 KiB in UTF-8 and 64 levels deep. It is stored and
             *     returned byte for byte.
             * @default {}
             */
            custom_event_props: string;
            /** @description What the contact is known by. */
            identifiers: components["schemas"]["ContactIdentifier"][];
            /** @description Like the header `Idempotency-Key` of a single event; both share one set of keys. */
            idempotency_key?: string;
        };
        /**
         * @description How many different records the lines were about, and what became of them. The three other counts add up to
         *     `records`.
         */
        ImportResult: {
            /**
             * Format: int32
             * @description The number of records.
             * @example 4
             */
            records: number;
            /**
             * Format: int32
             * @description Those that are new.
             * @example 4
             */
            added: number;
            /**
             * Format: int32
             * @description Those that were stored with other fields.
             * @example 0
             */
            changed: number;
            /**
             * Format: int32
             * @description Those that were stored already, and contacts that only gained identifiers.
             * @example 0
             */
            unchanged: number;
        };
        /** @description What became of a batch of custom events. */
        CustomEventBatchResult: {
            /** @description A result for each event, in the order of the events. */
            results: components["schemas"]["CustomEventBatchItemResult"][];
        };
        /**
         * @description What became of one event: with the `status` 200 the recorded `event`, else the `error`, and `moduleId` where it is
         *     about a module that does not exist.
         */
        CustomEventBatchItemResult: {
            /**
             * Format: int32
             * @description The status that the event alone would get.
             * @example 200
             */
            status: number;
            event?: components["schemas"]["CustomEventResult"];
            /** @description Whether the event was recorded before, under the same key. */
            replayed?: boolean;
            error?: components["schemas"]["ErrorInfo"];
            /** @description The project in the path. */
            projectId?: string;
            /** @description The module that does not exist. */
            moduleId?: string;
        };
        /** @description A recorded custom event. */
        CustomEventResult: {
            /** @description Unique identifier of the event. */
            event_id: string;
            /** @description The group of the module at the time of recording. */
            group_id: string;
            /** @description The project. */
            project_id: string;
            /** @description The module. */
            module_id: string;
            /**
             * Format: int32
             * @description The version of the module in effect at `timestamp`.
             */
            module_version_number: number;
            /** @description The contact, existing or new. */
            contact_id: string;
            /** @description The entry, existing or new. */
            entry_id: string;
            /**
             * Format: date-time
             * @description When the event happened.
             */
            timestamp: IsoTimestamp;
            /**
             * @description Always `custom_event:triggered`.
             * @example custom_event:triggered
             */
            event_type: string;
            /** @description The name as sent. */
            custom_event_name: string;
            /** @description The properties as sent, byte for byte. */
            custom_event_props: string;
        };
        /**
         * @description What went wrong. `projectId` is present once the path is that of an operation; `moduleId`, `versionNumber` and
         *     `entryId` where the error is about one.
         */
        ErrorBody: {
            error: components["schemas"]["ErrorInfo"];
            /** @description The project in the path. */
            projectId?: string;
            /** @description The module that does not exist, or has no such version. */
            moduleId?: string;
            /**
             * Format: int32
             * @description The version that does not exist.
             */
            versionNumber?: number;
            /** @description The entry that does not exist. */
            entryId?: string;
        };
        /** @description The code, a human-readable message, and the invalid parts of the request. */
        ErrorInfo: {
            /**
             * @description Machine-readable code, an open set. The chapter *Errors* explains the known ones.
             * @example invalid_request
             */
            code: string;
            /** @description What is wrong and how to fix it, human-readable. */
            message: string;
            /** @description The invalid parts of the request. */
            details?: components["schemas"]["ErrorDetail"][];
        };
        /** @description An invalid part of the request. */
        ErrorDetail: {
            /**
             * @description JSON pointer (RFC 6901) to the part, below `/body`, `/query`, `/path` or `/headers`.
             * @example /query/limit
             */
            pointer: string;
            /** @description What is wrong with the part and how to fix it. */
            message: string;
        };
    };
    responses: {
        /** @description The resource still has an entity tag of `If-None-Match`. There is no body. */
        NotModified: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                ETag: components["headers"]["ETag"];
                "Cache-Control": components["headers"]["CacheControl"];
                Vary: components["headers"]["Vary"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content?: never;
        };
        /** @description The request is invalid. `error.details` says where, and how to fix it. */
        InvalidRequest: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The request is invalid. `error.details` says where, and how to fix it. */
        InvalidVersionRequest: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The request is invalid. `error.details` says where, and how to fix it. */
        InvalidPageRequest: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The request is invalid. `error.details` says where, and how to fix it. */
        InvalidWindowRequest: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The request is invalid. `error.details` says where, and how to fix it. */
        InvalidFeedRequest: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The request is invalid. `error.details` says where, and how to fix it. Nothing was written. */
        InvalidEvent: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /**
         * @description The request is invalid as a whole. `error.details` says where, and how to fix it. Nothing was written. A single
         *     invalid event does not cause this, unless the body has more than 50,000 fields and items with it; it gets a result
         *     of its own.
         */
        InvalidBatch: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /**
         * @description A line is not a valid record, or the body has none. `error.details` says which line, and how to fix it. Nothing was
         *     written.
         */
        InvalidImport: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /**
         * @description The key does not give access to the project: it is missing, malformed, unknown, expired, revoked or of another
         *     project, or the project does not exist.
         */
        Unauthorized: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                "WWW-Authenticate": components["headers"]["WwwAuthenticate"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The key is valid but does not have the scope `read`. */
        ReadScopeMissing: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The key is valid but does not have the scope `events:write`. */
        WriteScopeMissing: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The key is valid but does not have the scope `import`. */
        ImportScopeMissing: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The project has no such module. */
        ModuleNotFound: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The project has no such module, or the module has no such version. */
        ModuleOrVersionNotFound: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The entry does not exist or may not be accessed. */
        EntryNotFound: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The identifiers belong to different contacts. Nothing was written. */
        IdentifierConflict: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description A record contradicts what is stored, or another line. `error.details` says which line. Nothing was written. */
        RecordConflict: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The body is larger than 256 KiB. */
        PayloadTooLarge: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The body is larger than 4 MiB. */
        BatchTooLarge: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The body is larger than 16 MiB, or than the limit of the operator. */
        ImportTooLarge: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The body is not `application/json` in UTF-8, or has a `Content-Encoding`, or a `Transfer-Encoding` other than `chunked`. */
        UnsupportedMediaType: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The body is not `application/x-ndjson` in UTF-8, or has a `Content-Encoding`, or a `Transfer-Encoding` other than `chunked`. */
        UnsupportedImport: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description The `Idempotency-Key` was used for another event. Nothing was written. */
        IdempotencyKeyReused: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /**
         * @description The key has exceeded its rate limit, or too many requests with keys that give no access came from your address.
         *     Retry after `Retry-After` seconds.
         */
        RateLimited: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                "Retry-After": components["headers"]["RetryAfter"];
                RateLimit: components["headers"]["RateLimitSpent"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /** @description An internal error, which is logged under the `X-Request-Id`. */
        InternalError: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
        /**
         * @description The service is temporarily unavailable: its database cannot be reached, or it is overloaded or stopping. A `POST`
         *     may have been carried out nevertheless; repeat it with the same `Idempotency-Key`, a batch with the same
         *     `idempotency_key` of each event, an import as it is.
         */
        ServiceUnavailable: {
            headers: {
                "X-Request-Id": components["headers"]["RequestId"];
                "Cache-Control": components["headers"]["NoStore"];
                "Retry-After": components["headers"]["RetryAfter"];
                RateLimit: components["headers"]["RateLimit"];
                "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ErrorBody"];
            };
        };
    };
    parameters: {
        /**
         * @description The project, which must be the one that the key belongs to.
         * @example demo
         */
        ProjectId: components["schemas"]["ResourceId"];
        /**
         * @description The module.
         * @example skin-quiz
         */
        ModuleId: components["schemas"]["ResourceId"];
        /**
         * @description The number of the version, a plain decimal integer.
         * @example 2
         */
        VersionNumber: number;
        /**
         * @description The entry.
         * @example 019ca8bb-b5c0-7000-8000-000000000001
         */
        EntryId: components["schemas"]["ResourceId"];
        /** @description Maximum number of rows per page. */
        Limit: number;
        /** @description `ASC` sorts ascending, `DESC` descending. */
        Direction: components["schemas"]["SortDirection"];
        /**
         * @description Where the page begins: the `Next-Cursor` of the previous page. It is valid only for the operation, path,
         *     direction and filters that it was returned for (`limit` may change), and does not expire with time.
         */
        Cursor: components["schemas"]["PageCursor"];
        /**
         * @description Only entries with `updated_at` at or after this instant.
         * @example 2026-01-01T00:00:00Z
         */
        UpdatedAfter: IsoTimestamp;
        /**
         * @description Only entries with `updated_at` before this instant, which must be later than `updated_after`.
         * @example 2026-12-31T00:00:00Z
         */
        UpdatedBefore: IsoTimestamp;
        /**
         * @description Only events after this `position`: the greatest one of your copy, or 0. Only with `direction=ASC`, and not with
         *     `cursor`.
         */
        After: number;
        /**
         * @description Long polling: how many seconds to hold back an empty page until there is an event. Only with `direction=ASC`. A
         *     page that was held back has at most 16 events, and a `Link` if there are more; when the service is about to stop,
         *     an empty page may come early. Set the timeouts of your client and of proxies a few seconds longer. If too many
         *     requests of a project wait, further ones get a `503`.
         */
        Wait: number;
        /**
         * @description Only erasures after this `position`: the greatest one that you have applied, or 0. Only with `direction=ASC`, and
         *     not with `cursor`.
         */
        AfterErasure: number;
        /**
         * @description Long polling: how many seconds to hold back an empty page until there is an erasure. Only with `direction=ASC`.
         *     Otherwise as in `listProjectEvents`.
         */
        WaitForErasure: number;
        /** @description One or more entity tags, or `*`. If the resource still has one of them, the response is `304`. */
        IfNoneMatch: components["schemas"]["EntityTags"];
        /**
         * @description A text of your choice, unique for each event in the project, for example a UUID. It is kept as long as the event,
         *     or, if the operator has set that, for a number of days (at least one): ask. Once an event is recorded, the same key
         *     with the same event returns the first response again, and with another event a `422`. Until then the key is free
         *     (but after a `500` or `503`, or without a response, the event may have been recorded). A key that is no longer kept is free again: with it, the same
         *     event is recorded a second time.
         */
        IdempotencyKey: string;
    };
    requestBodies: never;
    headers: {
        /**
         * @description Identifies this request in the service's logs. Quote it when you ask for support.
         * @example 019ca8bb-b5c0-7a31-9b5e-3f1f6b3c2d10
         */
        RequestId: string;
        /**
         * @description The strong entity tag of the body.
         * @example "jT1pWm2lD6yTn0l0dSg1gk0y7bTq0oLxvq3n5mX1k8Y"
         */
        ETag: string;
        /**
         * @description A client may cache the response, but must revalidate it before each use.
         * @example private, no-cache
         */
        CacheControl: string;
        /**
         * @description The response must not be cached.
         * @example no-store
         */
        NoStore: string;
        /**
         * @description The request headers that the response depends on.
         * @example X-Api-Key
         */
        Vary: string;
        /**
         * @description Present when there is another page. The URL of the next page, relative to this server (RFC 8288).
         * @example </projects/demo/modules/skin-quiz/versions?cursor=AWJ4&limit=2>; rel="next"
         */
        ModuleVersionsLink: string;
        /**
         * @description Present when there is another page. The URL of the next page, relative to this server (RFC 8288).
         * @example </projects/demo/entries/019ca8bb-b5c0-7000-8000-000000000001/events?cursor=AWJ4&limit=2>; rel="next"
         */
        EntryEventsLink: string;
        /**
         * @description Present when there is another page. The URL of the next page, relative to this server (RFC 8288).
         * @example </projects/demo/entries?cursor=AWJ4&limit=2>; rel="next"
         */
        EntriesLink: string;
        /**
         * @description Present when there is another page. The URL of the next page, relative to this server (RFC 8288).
         * @example </projects/demo/events?cursor=AWJ4&direction=ASC&limit=2>; rel="next"
         */
        ProjectEventsLink: string;
        /**
         * @description Present when there is another page. The URL of the next page, relative to this server (RFC 8288).
         * @example </projects/demo/erasures?cursor=AWJ4&direction=ASC&limit=2>; rel="next"
         */
        ErasuresLink: string;
        /**
         * @description Present when there is another page. The URL of the next page, relative to this server (RFC 8288).
         * @example </projects/demo/entries-page-views?cursor=AWJ4&limit=2>; rel="next"
         */
        EntryPageViewsLink: string;
        /**
         * @description Present when there is another page. The `cursor` of the next page.
         * @example AWJ4
         */
        NextCursor: string;
        /**
         * @description The `cursor` of the next page. With `direction=ASC` every page has it: after the last page, which has no `Link`,
         *     it leads to the events that come later, and it never expires. Else present when there is another page.
         * @example AWJ4
         */
        FeedCursor: string;
        /**
         * @description The `cursor` of the next page. With `direction=ASC` every page has it: after the last page, which has no `Link`,
         *     it leads to the erasures that come later, and it never expires. Else present when there is another page.
         * @example AWJ4
         */
        ErasuresCursor: string;
        /**
         * @description The number of seconds to wait before a retry.
         * @example 1
         */
        RetryAfter: number;
        /**
         * @description Present when a result has the status 503. The number of seconds to wait before a retry of those events.
         * @example 1
         */
        RetryAfterResults: number;
        /**
         * @description Present when the operator limits the rate: the remaining quota (`r`) and the seconds until it is reset (`t`)
         *     (draft-ietf-httpapi-ratelimit-headers).
         * @example "default";r=1;t=31
         */
        RateLimit: string;
        /**
         * @description The quota is used up; `t` is the number of seconds until it is reset.
         * @example "default";r=0;t=1
         */
        RateLimitSpent: string;
        /**
         * @description The quota (`q`) and its window in seconds (`w`). Present when the operator limits the rate, and with a `429` for keys
         *     that give no access, whose policy is named `"refused-keys"`.
         * @example "default";q=2;w=60
         */
        RateLimitPolicy: string;
        /**
         * @description How to authenticate (RFC 9110).
         * @example ApiKey realm="flowtrail"
         */
        WwwAuthenticate: string;
        /**
         * @description Present, and `true`, when this is the stored response of an earlier request with the same key.
         * @example true
         */
        IdempotentReplayed: "true";
        /**
         * @description Present if the service reads from several database servers: an opaque token for this write and all before it. Send
         *     it in a header of the same name with a read that must see this write.
         * @example 25769803776
         */
        ConsistencyToken: string;
    };
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    listModules: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /**
                 * @description The project, which must be the one that the key belongs to.
                 * @example demo
                 */
                projectId: components["parameters"]["ProjectId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The modules of the project. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["RequestId"];
                    "Cache-Control": components["headers"]["CacheControl"];
                    Vary: components["headers"]["Vary"];
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FlowModuleSummary"][];
                };
            };
            400: components["responses"]["InvalidRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["ReadScopeMissing"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["InternalError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    getModule: {
        parameters: {
            query?: never;
            header?: {
                /** @description One or more entity tags, or `*`. If the resource still has one of them, the response is `304`. */
                "If-None-Match"?: components["parameters"]["IfNoneMatch"];
            };
            path: {
                /**
                 * @description The project, which must be the one that the key belongs to.
                 * @example demo
                 */
                projectId: components["parameters"]["ProjectId"];
                /**
                 * @description The module.
                 * @example skin-quiz
                 */
                moduleId: components["parameters"]["ModuleId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The module. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["RequestId"];
                    ETag: components["headers"]["ETag"];
                    "Cache-Control": components["headers"]["CacheControl"];
                    Vary: components["headers"]["Vary"];
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FlowModule"];
                };
            };
            304: components["responses"]["NotModified"];
            400: components["responses"]["InvalidRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["ReadScopeMissing"];
            404: components["responses"]["ModuleNotFound"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["InternalError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    listModuleVersions: {
        parameters: {
            query?: {
                /** @description Maximum number of rows per page. */
                limit?: components["parameters"]["Limit"];
                /** @description `ASC` sorts ascending, `DESC` descending. */
                direction?: components["parameters"]["Direction"];
                /**
                 * @description Where the page begins: the `Next-Cursor` of the previous page. It is valid only for the operation, path,
                 *     direction and filters that it was returned for (`limit` may change), and does not expire with time.
                 */
                cursor?: components["parameters"]["Cursor"];
            };
            header?: never;
            path: {
                /**
                 * @description The project, which must be the one that the key belongs to.
                 * @example demo
                 */
                projectId: components["parameters"]["ProjectId"];
                /**
                 * @description The module.
                 * @example skin-quiz
                 */
                moduleId: components["parameters"]["ModuleId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of the versions. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["RequestId"];
                    Link: components["headers"]["ModuleVersionsLink"];
                    "Next-Cursor": components["headers"]["NextCursor"];
                    "Cache-Control": components["headers"]["CacheControl"];
                    Vary: components["headers"]["Vary"];
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModuleVersionSummary"][];
                };
            };
            400: components["responses"]["InvalidPageRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["ReadScopeMissing"];
            404: components["responses"]["ModuleNotFound"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["InternalError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    getModuleVersion: {
        parameters: {
            query?: never;
            header?: {
                /** @description One or more entity tags, or `*`. If the resource still has one of them, the response is `304`. */
                "If-None-Match"?: components["parameters"]["IfNoneMatch"];
            };
            path: {
                /**
                 * @description The project, which must be the one that the key belongs to.
                 * @example demo
                 */
                projectId: components["parameters"]["ProjectId"];
                /**
                 * @description The module.
                 * @example skin-quiz
                 */
                moduleId: components["parameters"]["ModuleId"];
                /**
                 * @description The number of the version, a plain decimal integer.
                 * @example 2
                 */
                versionNumber: components["parameters"]["VersionNumber"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The version. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["RequestId"];
                    ETag: components["headers"]["ETag"];
                    "Cache-Control": components["headers"]["CacheControl"];
                    Vary: components["headers"]["Vary"];
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModuleVersion"];
                };
            };
            304: components["responses"]["NotModified"];
            400: components["responses"]["InvalidVersionRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["ReadScopeMissing"];
            404: components["responses"]["ModuleOrVersionNotFound"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["InternalError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    listEntries: {
        parameters: {
            query?: {
                /** @description Maximum number of rows per page. */
                limit?: components["parameters"]["Limit"];
                /** @description `ASC` sorts ascending, `DESC` descending. */
                direction?: components["parameters"]["Direction"];
                /**
                 * @description Only entries with `updated_at` at or after this instant.
                 * @example 2026-01-01T00:00:00Z
                 */
                updated_after?: components["parameters"]["UpdatedAfter"];
                /**
                 * @description Only entries with `updated_at` before this instant, which must be later than `updated_after`.
                 * @example 2026-12-31T00:00:00Z
                 */
                updated_before?: components["parameters"]["UpdatedBefore"];
                /**
                 * @description Where the page begins: the `Next-Cursor` of the previous page. It is valid only for the operation, path,
                 *     direction and filters that it was returned for (`limit` may change), and does not expire with time.
                 */
                cursor?: components["parameters"]["Cursor"];
            };
            header?: never;
            path: {
                /**
                 * @description The project, which must be the one that the key belongs to.
                 * @example demo
                 */
                projectId: components["parameters"]["ProjectId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of the entries. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["RequestId"];
                    Link: components["headers"]["EntriesLink"];
                    "Next-Cursor": components["headers"]["NextCursor"];
                    "Cache-Control": components["headers"]["CacheControl"];
                    Vary: components["headers"]["Vary"];
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FlowEntry"][];
                };
            };
            400: components["responses"]["InvalidWindowRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["ReadScopeMissing"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["InternalError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    getEntry: {
        parameters: {
            query?: never;
            header?: {
                /** @description One or more entity tags, or `*`. If the resource still has one of them, the response is `304`. */
                "If-None-Match"?: components["parameters"]["IfNoneMatch"];
            };
            path: {
                /**
                 * @description The project, which must be the one that the key belongs to.
                 * @example demo
                 */
                projectId: components["parameters"]["ProjectId"];
                /**
                 * @description The entry.
                 * @example 019ca8bb-b5c0-7000-8000-000000000001
                 */
                entryId: components["parameters"]["EntryId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The entry. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["RequestId"];
                    ETag: components["headers"]["ETag"];
                    "Cache-Control": components["headers"]["CacheControl"];
                    Vary: components["headers"]["Vary"];
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FlowEntry"];
                };
            };
            304: components["responses"]["NotModified"];
            400: components["responses"]["InvalidRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["ReadScopeMissing"];
            404: components["responses"]["EntryNotFound"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["InternalError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    listEntryEvents: {
        parameters: {
            query?: {
                /** @description Maximum number of rows per page. */
                limit?: components["parameters"]["Limit"];
                /** @description `ASC` sorts ascending, `DESC` descending. */
                direction?: components["parameters"]["Direction"];
                /**
                 * @description Where the page begins: the `Next-Cursor` of the previous page. It is valid only for the operation, path,
                 *     direction and filters that it was returned for (`limit` may change), and does not expire with time.
                 */
                cursor?: components["parameters"]["Cursor"];
            };
            header?: never;
            path: {
                /**
                 * @description The project, which must be the one that the key belongs to.
                 * @example demo
                 */
                projectId: components["parameters"]["ProjectId"];
                /**
                 * @description The entry.
                 * @example 019ca8bb-b5c0-7000-8000-000000000001
                 */
                entryId: components["parameters"]["EntryId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of the events. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["RequestId"];
                    Link: components["headers"]["EntryEventsLink"];
                    "Next-Cursor": components["headers"]["NextCursor"];
                    "Cache-Control": components["headers"]["CacheControl"];
                    Vary: components["headers"]["Vary"];
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EntryEvent"][];
                };
            };
            400: components["responses"]["InvalidPageRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["ReadScopeMissing"];
            404: components["responses"]["EntryNotFound"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["InternalError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    listEntryPageViews: {
        parameters: {
            query?: {
                /** @description Maximum number of rows per page. */
                limit?: components["parameters"]["Limit"];
                /** @description `ASC` sorts ascending, `DESC` descending. */
                direction?: components["parameters"]["Direction"];
                /**
                 * @description Only entries with `updated_at` at or after this instant.
                 * @example 2026-01-01T00:00:00Z
                 */
                updated_after?: components["parameters"]["UpdatedAfter"];
                /**
                 * @description Only entries with `updated_at` before this instant, which must be later than `updated_after`.
                 * @example 2026-12-31T00:00:00Z
                 */
                updated_before?: components["parameters"]["UpdatedBefore"];
                /**
                 * @description Where the page begins: the `Next-Cursor` of the previous page. It is valid only for the operation, path,
                 *     direction and filters that it was returned for (`limit` may change), and does not expire with time.
                 */
                cursor?: components["parameters"]["Cursor"];
            };
            header?: never;
            path: {
                /**
                 * @description The project, which must be the one that the key belongs to.
                 * @example demo
                 */
                projectId: components["parameters"]["ProjectId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of the entries with their page views. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["RequestId"];
                    Link: components["headers"]["EntryPageViewsLink"];
                    "Next-Cursor": components["headers"]["NextCursor"];
                    "Cache-Control": components["headers"]["CacheControl"];
                    Vary: components["headers"]["Vary"];
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EntryPageViews"][];
                };
            };
            400: components["responses"]["InvalidWindowRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["ReadScopeMissing"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["InternalError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    listProjectEvents: {
        parameters: {
            query?: {
                /** @description Maximum number of rows per page. */
                limit?: components["parameters"]["Limit"];
                /** @description `ASC` sorts ascending, `DESC` descending. */
                direction?: components["parameters"]["Direction"];
                /**
                 * @description Where the page begins: the `Next-Cursor` of the previous page. It is valid only for the operation, path,
                 *     direction and filters that it was returned for (`limit` may change), and does not expire with time.
                 */
                cursor?: components["parameters"]["Cursor"];
                /**
                 * @description Only events after this `position`: the greatest one of your copy, or 0. Only with `direction=ASC`, and not with
                 *     `cursor`.
                 */
                after?: components["parameters"]["After"];
                /**
                 * @description Long polling: how many seconds to hold back an empty page until there is an event. Only with `direction=ASC`. A
                 *     page that was held back has at most 16 events, and a `Link` if there are more; when the service is about to stop,
                 *     an empty page may come early. Set the timeouts of your client and of proxies a few seconds longer. If too many
                 *     requests of a project wait, further ones get a `503`.
                 */
                wait?: components["parameters"]["Wait"];
            };
            header?: never;
            path: {
                /**
                 * @description The project, which must be the one that the key belongs to.
                 * @example demo
                 */
                projectId: components["parameters"]["ProjectId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of the feed. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["RequestId"];
                    Link: components["headers"]["ProjectEventsLink"];
                    "Next-Cursor": components["headers"]["FeedCursor"];
                    "Cache-Control": components["headers"]["CacheControl"];
                    Vary: components["headers"]["Vary"];
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProjectEvent"][];
                };
            };
            400: components["responses"]["InvalidFeedRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["ReadScopeMissing"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["InternalError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    recordCustomEvent: {
        parameters: {
            query?: never;
            header?: {
                /**
                 * @description A text of your choice, unique for each event in the project, for example a UUID. It is kept as long as the event,
                 *     or, if the operator has set that, for a number of days (at least one): ask. Once an event is recorded, the same key
                 *     with the same event returns the first response again, and with another event a `422`. Until then the key is free
                 *     (but after a `500` or `503`, or without a response, the event may have been recorded). A key that is no longer kept is free again: with it, the same
                 *     event is recorded a second time.
                 */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
            };
            path: {
                /**
                 * @description The project, which must be the one that the key belongs to.
                 * @example demo
                 */
                projectId: components["parameters"]["ProjectId"];
            };
            cookie?: never;
        };
        /** @description The event, at most 256 KiB of JSON and 200 fields and items. */
        requestBody: {
            content: {
                "application/json": components["schemas"]["CustomEventInput"];
            };
        };
        responses: {
            /** @description The event is recorded. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["RequestId"];
                    "Idempotent-Replayed": components["headers"]["IdempotentReplayed"];
                    "Consistency-Token": components["headers"]["ConsistencyToken"];
                    "Cache-Control": components["headers"]["NoStore"];
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CustomEventResult"];
                };
            };
            400: components["responses"]["InvalidEvent"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["WriteScopeMissing"];
            404: components["responses"]["ModuleNotFound"];
            409: components["responses"]["IdentifierConflict"];
            413: components["responses"]["PayloadTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            422: components["responses"]["IdempotencyKeyReused"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["InternalError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    recordCustomEvents: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /**
                 * @description The project, which must be the one that the key belongs to.
                 * @example demo
                 */
                projectId: components["parameters"]["ProjectId"];
            };
            cookie?: never;
        };
        /** @description The events, at most 4 MiB of JSON and 50,000 fields and items. */
        requestBody: {
            content: {
                "application/json": components["schemas"]["CustomEventBatch"];
            };
        };
        responses: {
            /** @description Each event has a result. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["RequestId"];
                    "Consistency-Token": components["headers"]["ConsistencyToken"];
                    "Cache-Control": components["headers"]["NoStore"];
                    "Retry-After": components["headers"]["RetryAfterResults"];
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CustomEventBatchResult"];
                };
            };
            400: components["responses"]["InvalidBatch"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["WriteScopeMissing"];
            413: components["responses"]["BatchTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["InternalError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    listErasures: {
        parameters: {
            query?: {
                /** @description Maximum number of rows per page. */
                limit?: components["parameters"]["Limit"];
                /** @description `ASC` sorts ascending, `DESC` descending. */
                direction?: components["parameters"]["Direction"];
                /**
                 * @description Where the page begins: the `Next-Cursor` of the previous page. It is valid only for the operation, path,
                 *     direction and filters that it was returned for (`limit` may change), and does not expire with time.
                 */
                cursor?: components["parameters"]["Cursor"];
                /**
                 * @description Only erasures after this `position`: the greatest one that you have applied, or 0. Only with `direction=ASC`, and
                 *     not with `cursor`.
                 */
                after?: components["parameters"]["AfterErasure"];
                /**
                 * @description Long polling: how many seconds to hold back an empty page until there is an erasure. Only with `direction=ASC`.
                 *     Otherwise as in `listProjectEvents`.
                 */
                wait?: components["parameters"]["WaitForErasure"];
            };
            header?: never;
            path: {
                /**
                 * @description The project, which must be the one that the key belongs to.
                 * @example demo
                 */
                projectId: components["parameters"]["ProjectId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of erasures. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["RequestId"];
                    Link: components["headers"]["ErasuresLink"];
                    "Next-Cursor": components["headers"]["ErasuresCursor"];
                    "Cache-Control": components["headers"]["CacheControl"];
                    Vary: components["headers"]["Vary"];
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Erasure"][];
                };
            };
            400: components["responses"]["InvalidFeedRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["ReadScopeMissing"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["InternalError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    importRecords: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /**
                 * @description The project, which must be the one that the key belongs to.
                 * @example demo
                 */
                projectId: components["parameters"]["ProjectId"];
            };
            cookie?: never;
        };
        /** @description The records, at most 16 MiB in UTF-8 unless the operator has set another limit. They must arrive within 30 seconds. */
        requestBody: {
            content: {
                "application/x-ndjson": string;
            };
        };
        responses: {
            /** @description All records are stored. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["RequestId"];
                    "Consistency-Token": components["headers"]["ConsistencyToken"];
                    "Cache-Control": components["headers"]["NoStore"];
                    RateLimit: components["headers"]["RateLimit"];
                    "RateLimit-Policy": components["headers"]["RateLimitPolicy"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImportResult"];
                };
            };
            400: components["responses"]["InvalidImport"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["ImportScopeMissing"];
            409: components["responses"]["RecordConflict"];
            413: components["responses"]["ImportTooLarge"];
            415: components["responses"]["UnsupportedImport"];
            429: components["responses"]["RateLimited"];
            500: components["responses"]["InternalError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
}
